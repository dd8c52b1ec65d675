#include <gradledger/testing.h>

#include "averaging_judged.h"

using gradledger::testing::LosesNothing;

namespace {

const auto scenario = gradledger::Scenario::load(AVERAGING_JSON);
const auto averaging = gradledger::ranks<Judged>("averaging", 4);

TEST(averaging, applies_every_micro_batch_of_every_rank) { EXPECT_THAT(gradledger::run(scenario, averaging), LosesNothing()); }

TEST(averaging, is_right_in_orders_that_nobody_wrote) { EXPECT_THAT(gradledger::check_orderings(scenario, averaging, {.seed = 1, .cases = 50}), LosesNothing()); }

TEST(averaging, is_right_in_every_order_of_up_to_eleven_events) { EXPECT_THAT(gradledger::explore_orderings(scenario, averaging, 11), LosesNothing()); }

}  // namespace
