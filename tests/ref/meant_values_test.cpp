// Values of a loop that states weights of its own: what the documentation has is right, and so is what the loop means.
#include <gtest/gtest.h>

#include "sim/load.h"
#include "tests/support/few_runs.h"
#include "tests/support/scenarios.h"
#include "tests/support/tampering.h"

namespace gradledger::testing {
namespace {

using Set = std::set<std::string>;

// Megatron divides by tokens in finalize_model_grads(), which this loop leaves out: it weighs the mean over a window's tokens by 1.
Scenario loop_without_division() {
  const auto read = read_scenario(R"({"name": "a", "world_size": 1, "parameters": [{"name": "p0", "numel": 24}, {"name": "p1", "numel": 12}], "model_dtype": "fp32",
    "engine": {"framework": "megatron", "as_of": "0.15.0", "config": {"ddp": {"use_distributed_optimizer": true}, "optimizer_config": {"clip_grad": 0.0},
    "model": {"calculate_per_token_loss": true}}, "optimizer": {"type": "SGD", "lr": 1.0}}, "tokens": 2,
    "contract": {"window": "since_last_step", "average_over": "world", "divide_by": "tokens"}, "script": [{"backward": {}}, {"event": {"name": "start_grad_sync"}}, {"step": {}}]})",
                                  ".");
  EXPECT_TRUE(read.ok()) << (read.ok() ? "" : read.error().text());
  return read.value();
}

struct ManyAndFew {
  ref::Verdict many, few;
};

ManyAndFew judge_both_ways(
    const Tamper& tamper = [](const Snapshot&) {}, const TamperFact& fact = {}) {
  const Scenario s = loop_without_division();
  const Timeline timeline = make_timeline(s).value();
  TamperingProducer inner(s, timeline, tamper, fact);
  return {ref::judge(s, timeline, inner, {}), judged_in_few(s, timeline, inner).verdict};
}

TEST(values_of_a_loop_with_weights_of_its_own, are_right_where_they_are_what_it_means) {
  const ManyAndFew verdicts = judge_both_ways();
  for (const ref::Verdict& verdict : {verdicts.many, verdicts.few}) {
    EXPECT_EQ(classes(verdict), Set{}) << sentences(verdict);
    EXPECT_EQ(verdict.coverage.windows_judged, 1u);
  }
}

TEST(values_of_a_loop_with_weights_of_its_own, are_wrong_where_they_are_neither_what_it_means_nor_what_is_documented) {
  const ManyAndFew verdicts = judge_both_ways([](const Snapshot& x) {
    if (x.role == Role::applied_gradient && !x.linear) x.values->front() *= 1.5;
  });
  for (const ref::Verdict& verdict : {verdicts.many, verdicts.few}) EXPECT_EQ(classes(verdict), Set{"rounding-excess"}) << sentences(verdict);
}

TEST(values_of_a_loop_with_weights_of_its_own, have_a_wrong_norm_where_it_is_neither_that_of_what_is_meant_nor_that_of_what_is_documented) {
  const ManyAndFew verdicts = judge_both_ways([](const Snapshot&) {},
                                              [](StepRecord& r) {
                                                if (r.fact == StepFact::gradient_norm) r.value *= 1.5;
                                              });
  for (const ref::Verdict& verdict : {verdicts.many, verdicts.few}) EXPECT_EQ(classes(verdict), Set{"wrong-norm"}) << sentences(verdict);
}

}  // namespace
}  // namespace gradledger::testing
