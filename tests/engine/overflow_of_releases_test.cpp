// What an overflow, a scale or a backward without a gradient did before the release that mends it, as real runs of 0.16.5, 0.17.6 and 0.18.3 show.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "tests/engine/releases.h"

namespace gradledger::testing {
namespace {

// deepspeed: of the configuration, and what stands behind it.
Scenario scenario(const char* as_of, const char* dtype, const std::string& deepspeed, const std::string& script) {
  return read_scenario(fmt::format(R"({{"name": "a", "world_size": 2, "parameters": [{{"name": "p0", "numel": 16}}], "model_dtype": "{}",
    "engine": {{"framework": "deepspeed", "as_of": "{}", "config": {{"gradient_accumulation_steps": 1, {}}}, "optimizer": {{"type": "SGD", "lr": 1.0}}}},
    "script": [{}], "allow_open": true}})",
                                   dtype, as_of, deepspeed, script),
                       ".")
      .value();
}

// In step 1.
std::set<double> applied_weights(const Scenario& s) {
  std::set<double> out;
  const ref::Verdict verdict = judge(s);
  for (const ref::AppliedRow& applied : verdict.applied)
    if (applied.step == 1) out.insert(applied.row.observed.begin(), applied.row.observed.end());
  return out;
}

TEST(the_section_fp16, scales_bf16_in_the_unfused_wrapper_though_it_is_not_enabled) {
  const auto weights = [](const char* optimizer) {
    Scenario s = scenario("0.17.6", "bf16", R"("bf16": {"enabled": true}, "fp16": {"initial_scale_power": 2})",
                          R"({"backward": {}}, {"step": {}}, {"zero_grad": "optimizer"}, {"backward": {"direct": true}}, {"step": {}})");
    if (std::string(optimizer) == "adam") s.engine.optimizer.type = OptimizerType::adam;
    return applied_weights(s);
  };
  EXPECT_EQ(weights("sgd"), (std::set<double>{0.0, 0.25}));  // loss.backward() reduces nothing, and multiplies by no scale
  EXPECT_EQ(weights("adam"), (std::set<double>{0.0, 1.0}));
}

TEST(an_overflow, that_FP16_Optimizer_applies_in_bf16_before_0_19_8_is_no_skipped_step) {
  const auto skips_differ = [](const char* as_of) {
    Scenario s = scenario(as_of, "bf16", R"("bf16": {"enabled": true})", R"({"no_sync": [{"backward": {}}]}, {"overflow": {"ranks": [1], "micro_batch": 0}}, {"step": {}})");
    s.engine.optimizer.type = OptimizerType::adam;
    const ref::Verdict verdict = judge(s);
    return std::any_of(verdict.findings.begin(), verdict.findings.end(), [](const ref::Finding& f) { return f.finding == ref::FindingClass::wrong_skip; });
  };
  EXPECT_FALSE(skips_differ("0.17.6"));
  EXPECT_FALSE(skips_differ("0.19.7"));
  EXPECT_TRUE(skips_differ("0.19.8"));
}

TEST(an_infinite_norm, of_offloaded_gradients_raises_before_0_17_1) {
  const auto errors = [](const char* as_of) {
    const Scenario s =
        scenario(as_of, "bf16", R"("bf16": {"enabled": true, "check_grad_overflow": false}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}})",
                 R"({"backward": {}}, {"overflow": {"ranks": [0], "micro_batch": 0}}, {"step": {}})");
    std::vector<std::string> out;
    for (const EngineErrorRecord& error : judge(s).facts.engine_errors) out.push_back(error.type + ": " + error.message);
    return out;
  };
  const std::string raised = "RuntimeError: linalg.vector_norm: Expected a floating point or complex tensor as input. Got Long";
  EXPECT_EQ(errors("0.17.0"), (std::vector<std::string>{raised, raised}));
  EXPECT_EQ(errors("0.17.1"), std::vector<std::string>{});
}

TEST(a_skipped_step, took_later_gradients_out_of_the_reach_of_safe_set_full_grad_before_0_17_1) {
  const auto weights = [](const char* as_of, const char* zero) {
    return applied_weights(scenario(as_of, "fp16", fmt::format(R"("fp16": {{"enabled": true, "initial_scale_power": 4}}, "zero_optimization": {{{}}})", zero),
                                    R"({"backward": {}}, {"overflow": {"micro_batch": 0}}, {"step": {}}, {"backward": {}},
                                       {"set_gradient": {"parameter": "p0", "times": 0.5}}, {"step": {}})"));
  };
  // Of stage 1 the first release with both the repair and ranks that agree on an overflow.
  for (const auto& [zero, repaired] : {std::pair{R"("stage": 1)", "0.18.0"}, std::pair{R"("stage": 2)", "0.17.1"}}) {
    EXPECT_EQ(weights("0.17.0", zero), std::set<double>{0.5}) << zero;
    EXPECT_EQ(weights(repaired, zero), std::set<double>{0.25}) << zero;
  }
  EXPECT_EQ(weights("0.17.0", R"("stage": 2, "offload_optimizer": {"device": "cpu"})"), std::set<double>{0.25});
}

TEST(a_backward_without_a_gradient, brings_the_bucket_before_0_17_2) {
  const auto errors = [](const char* as_of) {
    Scenario s = scenario(as_of, "bf16", R"("bf16": {"enabled": true}, "zero_optimization": {"stage": 2})", R"({"backward": {}}, {"step": {}})");
    s.parameters[0].used_by = *Predicate::parse("step != 0", "");
    std::vector<std::string> out;
    for (const EngineErrorRecord& error : judge(s).facts.engine_errors) out.emplace_back(error.type);
    return out;
  };
  EXPECT_EQ(errors("0.17.1"), std::vector<std::string>{});
  EXPECT_EQ(errors("0.17.2"), (std::vector<std::string>{"IndexError", "IndexError"}));
}

TEST(a_direct_backward_without_a_gradient, does_not_end_where_hooks_are_counted) {
  const auto errors = [](const char* as_of) {
    Scenario s = scenario(as_of, "bf16", R"("bf16": {"enabled": true}, "zero_optimization": {"stage": 2})",
                          R"({"backward": {"direct": true}}, {"backward": {"direct": true}}, {"step": {}})");
    s.parameters[0].used_by = *Predicate::parse("micro_batch != 0", "");
    std::vector<std::string> out;
    for (const EngineErrorRecord& error : judge(s).facts.engine_errors) out.emplace_back(fmt::format("{} at event {}", error.type, error.event));
    return out;
  };
  EXPECT_EQ(errors("0.18.3"), std::vector<std::string>{});
}

}  // namespace
}  // namespace gradledger::testing
