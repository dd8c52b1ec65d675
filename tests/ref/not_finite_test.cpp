// What the oracle says where a framework divides by nothing: no weight can be told, and the values are wrong.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

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
  if (!few_runs) return ref::judge(s, *timeline, inner, {});
  FewRunsProducer producer(inner);
  return ref::judge(s, *timeline, producer, {});
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

}  // namespace
}  // namespace gradledger::testing
