// What the oracle asks of Muon: its momentum, and nothing that its orthogonalization makes.
#include <algorithm>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "sim/frameworks/deepspeed/settings.h"
#include "tests/support/scenarios.h"
#include "tests/support/tampering.h"

namespace gradledger::testing {
namespace {

using Set = std::set<std::string>;

Scenario with_muon(std::uint32_t number, Dtype dtype) {
  Scenario s = base_scenario(2, {30, 21, 13}, dtype);
  deepspeed_config(s).zero.stage = number;
  deepspeed_config(s).zero.reduce_scatter = false;
  deepspeed_config(s).gradient_accumulation_steps = 2;
  s.engine.optimizer.type = OptimizerType::muon;
  s.script = {repeat(3, managed(2))};
  return s;
}

// Changes the momentum of rank 1 behind the second step.
ref::Verdict judge_momentum(const Scenario& s, double factor) {
  return judge_tampered(s, [factor](const Snapshot& x) {
    if (x.role != Role::first_moment || x.linear || x.rank != 1 || x.step != 1) return;
    for (double& value : *x.values) value *= factor;
  });
}

TEST(muon_judge, finds_nothing_in_a_momentum_that_follows_the_applied_gradients) {
  for (const std::uint32_t number : {1u, 2u, 3u})
    for (const Dtype dtype : {Dtype::float32, Dtype::bfloat16}) {
      const ref::Verdict verdict = judge(with_muon(number, dtype));
      EXPECT_EQ(classes(verdict), Set{}) << number << sentences(verdict);
      EXPECT_GT(verdict.parameters.elements, 0u);
    }
}

// One bit in ten of bf16's, and one in a hundred of fp32's.
TEST(muon_judge, finds_a_momentum_that_kept_another_share) {
  for (const std::uint32_t number : {1u, 2u, 3u})
    for (const auto& [dtype, factor] : {std::pair{Dtype::float32, 1.01}, {Dtype::bfloat16, 1.1}}) {
      const ref::Verdict verdict = judge_momentum(with_muon(number, dtype), factor);
      ASSERT_TRUE(classes(verdict).contains("rounding-excess")) << number << sentences(verdict);
      const auto found = std::find_if(verdict.findings.begin(), verdict.findings.end(), [](const ref::Finding& f) { return f.role == Role::first_moment; });
      ASSERT_NE(found, verdict.findings.end());
      EXPECT_EQ(found->step, 1u);
      EXPECT_EQ(found->rank, 1u);
    }
}

TEST(muon_judge, holds_a_skipped_step_to_the_momentum_that_it_found) {
  Scenario s = with_muon(2, Dtype::float16);
  deepspeed_config(s).fp16.enabled = true;
  deepspeed_config(s).fp16.initial_scale_power = 4;
  s.script.insert(s.script.begin(), overflow(0, 1));
  EXPECT_EQ(classes(judge(s)), Set{}) << sentences(judge(s));
  s.engine.as_of.switches["muon_staging"] = "none";
  EXPECT_TRUE(classes(judge(s)).contains("wrong-skip")) << sentences(judge(s));
}

TEST(muon_judge, asks_nothing_of_weights_and_says_so) {
  const ref::Verdict verdict = judge_tampered(with_muon(1, Dtype::float32), [](const Snapshot& x) {
    if (x.role != Role::master_parameter || x.linear) return;
    for (double& value : *x.values) value = -value;
  });
  EXPECT_EQ(classes(verdict), Set{}) << sentences(verdict);
  ASSERT_FALSE(verdict.left_out.empty());
  EXPECT_NE(verdict.left_out.front().find("weights that Muon updates"), std::string::npos);
}

}  // namespace
}  // namespace gradledger::testing
