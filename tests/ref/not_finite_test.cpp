// What the oracle says where a framework divides by nothing: no weight can be told, and the values are wrong.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "sim/load.h"
#include "tests/support/few_runs.h"
#include "tests/support/tampering.h"

namespace gradledger::testing {
namespace {

using Set = std::set<std::string>;

// Two ranks, of whose applied gradients this replaces the numbers.
ref::Verdict judge_with(double number, bool few_runs) {
  Scenario s = base_scenario(2, {30, 21}, Dtype::bfloat16);
  deepspeed_config(s).zero.stage = 1;
  s.script = {repeat(2, managed(1))};
  const auto timeline = make_timeline(s);
  TamperingProducer inner(s, *timeline, [&](const Snapshot& x) {
    if (x.role != Role::applied_gradient || x.step != 0) return;
    for (double& value : *x.values) value = number == 0 ? value / number : number;  // 0 / 0 is NaN
  });
  return few_runs ? judged_in_few(s, *timeline, inner).verdict : ref::judge(s, *timeline, inner, {});
}

void expect_no_weights(const ref::Verdict& verdict) {
  EXPECT_EQ(classes(verdict), Set{"nonfinite-missed"}) << sentences(verdict);
  EXPECT_EQ(sentences(verdict).find("weight"), std::string::npos) << sentences(verdict);
  EXPECT_GT(verdict.inconclusive_rows.by_reason[static_cast<std::size_t>(ref::NotTold::not_finite)], 0u);
}

TEST(not_finite, values_tell_no_weight) { expect_no_weights(judge_with(0, false)); }

TEST(not_finite, values_of_few_runs_tell_no_weight) {
  expect_no_weights(judge_with(0, true));
  expect_no_weights(judge_with(std::numeric_limits<double>::quiet_NaN(), true));
  expect_no_weights(judge_with(std::numeric_limits<double>::infinity(), true));
}

// Memory that nobody wrote is NaN in our own executor, with nothing infinite beside it.
TEST(not_finite, memory_that_nobody_wrote_is_no_sum_of_contributions) {
  const ref::Verdict verdict = judge_with(std::numeric_limits<double>::quiet_NaN(), false);
  EXPECT_EQ(verdict.inconclusive_rows.total(), 0u);
  EXPECT_NE(classes(verdict), Set{"nonfinite-missed"}) << sentences(verdict);
}

// The second backward of one forward uses fewer parameters, and what it adds for the others was written by nobody.
TEST(not_finite, memory_that_is_reported_as_never_written_has_no_weights_beside) {
  const Scenario s = read_scenario(R"({"name": "a", "world_size": 1, "parameters": [{"name": "p0", "numel": 15}, {"name": "p1", "numel": 2}], "model_dtype": "fp32",
      "engine": {"framework": "fsdp2", "as_of": "2.13.0", "config": {"wrap": "root"}, "optimizer": {"type": "SGD", "lr": 1.0}},
      "script": [{"event": {"name": "set_requires_gradient_sync", "value": false}}, {"forward": {}}, {"backward": {"of": 0}}, {"backward": {"of": 0, "uses": ["p1"]}}, {"step": {}}]})",
                                   ".")
                         .value();
  const Timeline timeline = make_timeline(s).value();
  HostExecutor producer(s, timeline);
  ref::OracleOptions numeric;
  numeric.executor = ref::Executor::numeric;
  for (const ref::Verdict& verdict : {judge(s), ref::judge(s, timeline, producer, numeric)}) {
    EXPECT_TRUE(classes(verdict).contains("unwritten-memory")) << sentences(verdict);
    EXPECT_FALSE(classes(verdict).contains("wrong-scale")) << sentences(verdict);
    EXPECT_EQ(sentences(verdict).find("nan"), std::string::npos) << sentences(verdict);
  }
}

// Megatron-Core before 0.15 divides the loss of a schedule by its tokens, of which these have none.
Scenario without_tokens(const std::string& parameters, const std::string& script) {
  return read_scenario(R"({"name": "a", "world_size": 2, "parameters": )" + parameters + R"(, "model_dtype": "bf16",
      "engine": {"framework": "megatron", "as_of": "0.14.0", "config": {"schedule": {"num_microbatches": 2, "loss": "sum_and_tokens"}}, "optimizer": {"type": "SGD", "lr": 1.0}},
      "script": )" + script +
                           "}",
                       ".")
      .value();
}

// Each rank has gradients of its own, infinite in some elements and NaN in others.
TEST(not_finite, values_that_differ_between_ranks_have_no_divergence_of_their_own) {
  const Scenario s = without_tokens(R"([{"name": "w0", "numel": 24}])", R"([{"backward": {}}, {"step": {}}, {"backward": {}}, {"step": {}}])");
  const ref::Verdict verdict = judge(s);
  EXPECT_EQ(classes(verdict), Set{"rounding-excess"}) << sentences(verdict);
}

// One parameter has no gradient, and a weight of 0 as is due; the others have one that is not told, and is due 0 in the second window.
TEST(not_finite, values_are_not_taken_for_those_of_an_element_that_is_right) {
  const Scenario s = without_tokens(R"([{"name": "w0", "numel": 5, "used_by": "micro_batch > 0"}, {"name": "w1", "numel": 7}])",
                                    R"([{"backward": {}}, {"step": {}}, {"no_sync": [{"step": {}}]}, {"zero_grad": "engine"}, {"event": {"name": "forward_backward_func"}}])");
  const Timeline timeline = make_timeline(s).value();
  HostExecutor producer(s, timeline);
  ref::OracleOptions options;
  options.executor = ref::Executor::numeric;
  const ref::Verdict verdict = ref::judge(s, timeline, producer, options);
  EXPECT_EQ(classes(verdict), Set{"rounding-excess"}) << sentences(verdict);
}

}  // namespace
}  // namespace gradledger::testing
