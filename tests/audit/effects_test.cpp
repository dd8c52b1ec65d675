// What becomes of contributions, in words, of ledgers that are made by hand.
#include <gtest/gtest.h>

#include "audit/effects.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

// One window of one micro-batch. misplaced: by row of four elements; where it is false the weight is missing.
audit::Effects effects_of_rows(const std::vector<bool>& misplaced) {
  Scenario s = base_scenario(1, {8}, Dtype::float32);
  s.script = {backward(), step()};
  const Timeline timeline = make_timeline(s).value();
  ref::Verdict verdict;
  for (std::uint32_t i = 0; i < misplaced.size(); ++i) {
    ref::AppliedRow row{0, 1, 0, "gradients", {{0, 0, 0}}, {}};
    row.row.elements = {{0, 4 * i, 4 * i + 4}};
    row.row.observed = {0};
    row.row.expected = {1};
    row.row.misplaced = {misplaced[i]};
    verdict.applied.push_back(row);
  }
  ref::Finding finding;
  finding.finding = ref::FindingClass::misplaced_shard;
  finding.sentence = "misplaced-shard: elements hold what belongs to other elements";
  verdict.findings = {finding};
  return audit::effects_of(s, timeline, verdict);
}

TEST(effects, of_a_weight_that_is_missing_everywhere_are_a_loss) {
  const audit::Effects lost = effects_of_rows({false, false});
  EXPECT_TRUE(lost.lost);
  EXPECT_FALSE(lost.partly);
}

TEST(effects, of_a_weight_that_is_misplaced_are_no_loss) {
  const audit::Effects partly = effects_of_rows({false, true});
  EXPECT_FALSE(partly.lost) << "it reaches the update, in elements that are not its own";
  EXPECT_TRUE(partly.partly);
  const audit::Effects none = effects_of_rows({true, true});
  EXPECT_FALSE(none.lost || none.partly || none.scaled || none.stale);
  ASSERT_EQ(none.list.size(), 1u);
  EXPECT_EQ(none.list[0].kind, "misplaced-shard");
  EXPECT_EQ(none.list[0].sentence, "elements hold what belongs to other elements");
  EXPECT_EQ(none.verdict, "misplaced-shard");
}

}  // namespace
}  // namespace gradledger::testing
