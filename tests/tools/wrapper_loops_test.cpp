// Loops of PyTorch's wrappers in which one event is more than one thing: the optimizer runs inside backwards, a backward is of a sum of losses or ends at a call of
// the loop's, or modules are reduced each on its own.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/support/loops.h"
#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

std::string corpus(const char* name) { return std::string(GRADLEDGER_SOURCE_DIR) + "/scenarios/" + name + ".json"; }

json replayed(const std::string& file, std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"replay", "--json", "--ledger", file});
  return record_of(run(options));
}

TEST(an_optimizer_inside_backwards, closes_a_window_in_each_backward_that_is_reduced) {
  for (const char* name : {"ddp/optimizer-in-the-wrappers-hook-accumulates", "fsdp2/optimizer-inside-backwards"})
    for (const char* executor : {"numeric", "symbolic"}) {
      const json report = replayed(corpus(name), {"--executor", executor});
      EXPECT_EQ(report["findings"], json::array()) << name << executor;
      EXPECT_EQ(report["coverage"]["windows_closed"], 2) << name << executor;
      EXPECT_EQ(report["coverage"]["windows_judged"], 2) << name << executor;
      EXPECT_EQ(report["coverage"]["missing_facts"], json::array()) << name << executor;
    }
}

TEST(an_optimizer_inside_backwards, is_held_to_its_own_windows_where_a_loop_waits_for_a_longer_one) {
  const TemporaryFolder folder;
  json document = loop_around("fsdp2", R"([{"repeat": {"times": 2, "of": [{"backward": {"micro_batches": 2}}]}}])", R"({"optimizer_in_backward": true})");
  document["contract"] = {{"divide_by", 2}};
  const json report = replayed(folder.write("a.json", document.dump()));
  EXPECT_EQ(report["coverage"]["windows_closed"], 4);
  ASSERT_FALSE(report["findings"].empty()) << "each backward is applied whole, and the loop means to divide by two";
  EXPECT_EQ(report["findings"][0]["class"], "wrong-scale");
}

json weights_in_bf16(const char* framework, const char* script, const std::string& config) {
  json document = loop_around(framework, script, config);
  document["model_dtype"] = "bf16";
  return document;
}

TEST(weights_in_16_bits, have_gradients_in_16_bits_whatever_these_are_computed_or_reduced_in) {
  const TemporaryFolder folder;
  for (const char* framework : {"fsdp1", "fsdp2"})
    for (const char* precision : {"param_dtype", "reduce_dtype"}) {
      const json document =
          weights_in_bf16(framework, R"([{"backward": {"micro_batches": 3}}, {"step": {}}])", std::string(R"({"mixed_precision": {")") + precision + R"(": "fp32"}})");
      EXPECT_EQ(replayed(folder.write("a.json", document.dump()))["findings"], json::array()) << framework << precision;
    }
}

TEST(weights_in_16_bits, take_a_wider_gradient_as_it_is) {
  const TemporaryFolder folder;
  const json document =
      weights_in_bf16("fsdp1", R"([{"no_sync": [{"backward": {}}]}, {"step": {}}])", R"({"sharding_strategy": "NO_SHARD", "mixed_precision": {"param_dtype": "fp32"}})");
  const json findings = replayed(folder.write("a.json", document.dump()))["findings"];
  ASSERT_FALSE(findings.empty());
  for (const json& finding : findings) EXPECT_EQ(finding["class"], "missing-reduction") << "the step rounds once";
}

// What clip_grad_norm_ of PyTorch 2.13 makes of gradients [2, 2, 6, 5] and [4, 3], the norms of which it rounds.
TEST(a_clip_in_16_bits, leaves_what_pytorch_leaves) {
  const TemporaryFolder folder;
  const json in_bf16 = {0.061767578125, 0.061767578125, 0.185546875, 0.154296875}, in_fp16 = {0.0618896484375, 0.0618896484375, 0.1856689453125, 0.15478515625};
  for (const char* framework : {"ddp", "deepspeed"})
    for (const char* dtype : {"bf16", "fp16"}) {
      const bool bf16 = dtype == std::string("bf16");
      json document = loop_around(framework, R"([{"backward": {}}, {"clip": {"max_norm": 0.3, "norm_over": "rank"}}, {"step": {}}])");
      if (framework == std::string("deepspeed")) document["engine"]["config"] = {{"gradient_accumulation_steps", 1}, {dtype, {{"enabled", true}}}};
      if (framework == std::string("deepspeed") && !bf16) document["engine"]["config"]["fp16"]["loss_scale"] = 1;
      document["model_dtype"] = dtype;
      document["parameters"] = {{{"name", "w0"}, {"numel", 4}}, {{"name", "w1"}, {"numel", 2}}};
      const json gradients = {{"w0", {2, 2, 6, 5}}, {"w1", {4, 3}}};
      document["gradients"] = {{"kind", "values"}, {"micro_batches", {{gradients, gradients}}}};
      document["expect"] = {{"findings", json::array()}, {"values", {{{"event", 1}, {"rank", 1}, {"buffer", "w0.grad"}, {"values", bf16 ? in_bf16 : in_fp16}}}}};
      const Outcome outcome = run({"gate", folder.write("a.json", document.dump())});
      EXPECT_EQ(outcome.code, tool::clean) << framework << dtype << outcome.out;
    }
}

TEST(an_optimizer_in_a_hook_of_the_loop, applies_the_ranks_own_gradient) {
  const json report = replayed(corpus("ddp/optimizer-in-a-hook-of-the-loop"));
  ASSERT_FALSE(report["findings"].empty());
  const json& finding = report["findings"][0];
  EXPECT_EQ(finding["class"], "missing-reduction");
  EXPECT_EQ(finding["rank"], 0);
  ASSERT_EQ(finding["contributions"].size(), 2u);
  EXPECT_EQ(finding["contributions"][0]["observed"], 1.0);
  EXPECT_EQ(finding["contributions"][1]["observed"], 0.0);
  EXPECT_EQ(finding["contributions"][1]["expected"], 0.5);
}

TEST(an_optimizer_inside_backwards, refuses_what_comes_too_late_or_has_no_window) {
  const TemporaryFolder folder;
  const auto error_of = [&](const char* framework, const char* script, json contract = {}) {
    json document = loop_around(framework, script, R"({"optimizer_in_backward": true})");
    if (!contract.is_null()) document["contract"] = std::move(contract);
    const Outcome outcome = run({"replay", folder.write("a.json", document.dump())});
    EXPECT_EQ(outcome.code, tool::bad_input) << framework << script;
    return outcome.err;
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  for (const char* framework : {"ddp", "fsdp2"}) {
    EXPECT_TRUE(has(error_of(framework, R"([{"backward": {}}, {"step": {}}])"), "/script/1: is not called where the optimizer runs inside backwards")) << framework;
    EXPECT_TRUE(has(error_of(framework, R"([{"backward": {}}, {"clip": {"max_norm": 1}}])"), "/script/1: comes too late")) << framework;
    EXPECT_TRUE(has(error_of(framework, R"([{"no_sync": [{"backward": {"raises_after": 1}}]}])"), "/script/0/no_sync/0: leaves a part of the parameters updated")) << framework;
    EXPECT_TRUE(has(error_of(framework, R"([{"forward": {}}, {"backward": {"of": 0}}])"), "/script/0: is told from others by its number")) << framework;
    EXPECT_TRUE(has(error_of(framework, R"([{"backward": {}}])", {{"window", "every_step_call"}}), "/contract/window: states windows that steps close")) << framework;
  }
}

TEST(an_optimizer_inside_backwards, has_applied_nothing_where_no_backward_is_reduced) {
  const TemporaryFolder folder;
  const json document = loop_around("ddp", R"([{"no_sync": [{"backward": {}}]}])", R"({"optimizer_in_backward": true})");
  const Outcome outcome = run({"replay", folder.write("a.json", document.dump())});
  EXPECT_EQ(outcome.code, tool::bad_input);
  EXPECT_NE((outcome.out + outcome.err).find("no backward is reduced, and the optimizer runs inside those alone"), std::string::npos) << outcome.out << outcome.err;
}

// Its two micro-batches are contributions of their own: each weighs 1/2 on each of two ranks.
TEST(a_backward_of_a_sum, has_each_of_its_micro_batches_in_the_ledger) {
  for (const char* framework : {"ddp", "fsdp1", "fsdp2"}) {
    const std::string file = corpus((std::string(framework) + "/backward-of-a-sum-" + framework).c_str());
    for (const char* executor : {"numeric", "symbolic"}) EXPECT_EQ(replayed(file, {"--executor", executor})["findings"], json::array()) << framework << executor;
    const TemporaryFolder folder;
    json document = loop_around(framework, R"([{"backward": {"sum_of": 2}}, {"step": {}}])");
    document["contract"] = {{"divide_by", 2}};
    const json report = replayed(folder.write("a.json", document.dump()));
    ASSERT_FALSE(report["findings"].empty()) << framework;
    EXPECT_EQ(report["findings"][0]["class"], "wrong-scale") << framework;
    EXPECT_EQ(report["findings"][0]["contributions"].size(), 4u) << framework;
  }
}

// Autograd adds the two gradients up in the format that it makes them in, coarser than the sums of the window.
TEST(a_backward_of_a_sum, is_no_excess_of_rounding_in_16_bits) {
  const TemporaryFolder folder;
  for (const char* framework : {"ddp", "fsdp1", "fsdp2"})
    for (const char* dtype : {"bf16", "fp16"}) {
      json document = loop_around(framework, R"([{"no_sync": [{"backward": {"sum_of": 3}}]}, {"backward": {"sum_of": 2}}, {"step": {}}])");
      document["model_dtype"] = dtype;
      document["gradients"] = {{"kind", "normal"}, {"seed", 3}};
      const Outcome outcome = run({"replay", "--summary", folder.write("a.json", document.dump())});
      EXPECT_EQ(outcome.code, tool::clean) << framework << dtype << outcome.out << outcome.err;
    }
}

// ---- backwards that the loop ends -----------------------------------------------------------------------------------------------------

TEST(a_backward_that_the_loop_ends, is_judged_at_its_end_and_not_before) {
  for (const char* executor : {"numeric", "symbolic"}) {
    const json whole = replayed(corpus("fsdp2/finalized-by-hand"), {"--executor", executor});
    EXPECT_EQ(whole["findings"], json::array()) << executor;
    EXPECT_EQ(whole["coverage"]["windows_judged"], 2) << executor;
    EXPECT_EQ(whole["coverage"]["not_judged"]["reduced in parts"], 0) << "none is reduced before";
    const json each = replayed(corpus("fsdp2/finalized-each-backward"), {"--executor", executor});
    EXPECT_EQ(each["findings"], json::array()) << executor;
    EXPECT_GT(each["coverage"]["not_judged"]["reduced in parts"], 0) << "a hook reduces some modules, and the loop the others";
  }
}

TEST(a_backward_that_the_loop_ends, is_the_loops_to_end) {
  const auto rules = [](const char* name) {
    std::set<std::string> out;
    const json report = replayed(corpus(name));
    for (const json& finding : report["findings"]) out.insert(finding["blame"].value("rule", "none"));
    return out;
  };
  using Rules = std::set<std::string>;
  EXPECT_EQ(rules("fsdp2/finalize-never-called"), Rules{"backward-finalized"});
  EXPECT_EQ(rules("fsdp2/finalized-with-sync-off"), Rules{"backward-finalized"});
  EXPECT_EQ(rules("fsdp2/finalized-async-without-wait"), Rules{"backward-finalized"});
  EXPECT_EQ(rules("fsdp2/finalized-without-the-mode"), Rules{"backward-finalized"});
  EXPECT_EQ(rules("fsdp2/reduced-but-not-finalized"), (Rules{"backward-finalized", "unreduced-until-finalized"}));
  EXPECT_EQ(rules("fsdp2/finalized-behind-an-exception"), Rules{"reset-behind-exception"});
  for (const char* name : {"finalized-behind-the-step", "finalized-in-the-next-window", "views-read-before-they-are-finalized", "forward-before-finalize", "finalized-in-no-sync"})
    EXPECT_EQ(rules((std::string("ddp/") + name).c_str()), Rules{"finalized-once-a-backward"}) << name;
}

TEST(a_backward_that_the_loop_ends, keeps_its_mode_until_then_and_is_the_roots) {
  const auto broken = [](const std::string& events) {
    const std::vector<std::string> rules = broken_rules(loop_around("fsdp2", "[" + events + "]"));
    return std::find(rules.begin(), rules.end(), "backward-finalized") != rules.end();
  };
  const std::string by_hand = R"({"event": {"name": "set_manual_backward_finalization", "value": true}}, )",
                    by_itself = R"({"event": {"name": "set_manual_backward_finalization", "value": false}}, )";
  const std::string finalize = R"({"event": {"name": "finalize_backward"}}, )", backward = R"({"backward": {}}, )", step = R"({"step": {}})";
  EXPECT_FALSE(broken(by_hand + backward + finalize + by_itself + step));
  EXPECT_TRUE(broken(by_hand + backward + by_itself + finalize + step));
  EXPECT_TRUE(broken(by_hand + backward + R"({"event": {"name": "finalize_backward", "unit": 0}}, )" + finalize + step));
  EXPECT_TRUE(broken(R"({"event": {"name": "set_manual_backward_finalization", "value": true, "unit": 0}}, )" + backward + step));
}

// Zeros first, then the gradient: each rank's shard of w1, which both forwards use.
TEST(an_optimizer_inside_a_backward, is_held_to_the_gradient_that_it_is_given_and_not_to_zeros_beside_it) {
  for (const char* executor : {"numeric", "symbolic"}) {
    const json found = replayed(corpus("fsdp2/optimizer-inside-a-backward-of-a-sum"), {"--executor", executor});
    for (const json& finding : found["findings"]) EXPECT_EQ(finding["class"], "stream-race") << executor;
    EXPECT_EQ(found["coverage"]["not_judged"]["zeros inside a backward"], 2) << executor;
    EXPECT_EQ(found["coverage"]["windows_judged"], 1) << executor;
  }
}

// ---- modules that reduce on their own -------------------------------------------------------------------------------------------------

TEST(a_module_that_reduces_on_its_own, is_held_to_the_gradient_that_its_step_applies) {
  for (const char* executor : {"numeric", "symbolic"}) {
    const json right = replayed(corpus("fsdp2/module-reduced-at-the-end"), {"--executor", executor});
    EXPECT_EQ(right["findings"], json::array()) << executor;
    EXPECT_EQ(right["coverage"]["windows_judged"], 2) << executor;
    EXPECT_GT(right["coverage"]["not_judged"]["reduced in parts"], 0) << executor;
    const json wrong = replayed(corpus("fsdp2/module-left-without-sync"), {"--executor", executor});
    ASSERT_FALSE(wrong["findings"].empty()) << executor;
    for (const json& finding : wrong["findings"]) {
      EXPECT_EQ(finding["blame"]["rule"], "last-backward-reduced") << executor;
      for (const json& elements : finding["elements"]) EXPECT_EQ(elements["parameter"], "w0") << "the other module is right";
    }
  }
}

}  // namespace
}  // namespace gradledger::testing
