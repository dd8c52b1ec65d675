// Which rank goes on is picked by its place among those that may: as in a sorted list.
#include <gtest/gtest.h>

#include <iterator>
#include <set>
#include <vector>

#include "sim/base/hash.h"
#include "sim/execution/policy.h"
#include "sim/execution/runnable_ranks.h"

namespace gradledger::testing {
namespace {

TEST(runnable_ranks, are_a_sorted_list) {
  for (const std::uint32_t world : {1u, 2u, 63u, 64u, 65u, 1000u, 65536u}) {
    SplitMix64 random(world);
    RunnableRanks ranks(world);
    std::set<std::uint16_t> list;
    for (int turn = 0; turn < 2000; ++turn) {
      const auto rank = static_cast<std::uint16_t>(random.below(world));
      if (list.contains(rank) && random.next() % 2 == 0) {
        list.erase(rank);
        ranks.erase(rank);
      } else {
        list.insert(rank);
        ranks.insert(rank);
      }
      ASSERT_EQ(ranks.size(), list.size());
      ASSERT_EQ(ranks.empty(), list.empty());
      if (list.empty()) continue;
      const std::uint32_t place = random.below(static_cast<std::uint32_t>(list.size()));
      ASSERT_EQ(ranks[place], *std::next(list.begin(), place)) << world;
    }
    EXPECT_EQ(ranks.all(), std::vector<std::uint16_t>(list.begin(), list.end()));
  }
}

TEST(runnable_ranks, are_picked_as_from_a_list_by_every_policy) {
  for (const auto policy : {Schedule::Policy::seeded, Schedule::Policy::round_robin, Schedule::Policy::in_order, Schedule::Policy::replay}) {
    Schedule schedule{policy, 7, {2, 5, 1, 1}};
    SchedulePolicy of_list(schedule), of_ranks(schedule);
    std::vector<std::uint16_t> list;
    RunnableRanks ranks(9);
    for (std::uint16_t rank = 0; rank < 9; ++rank) {
      list.push_back(rank);
      ranks.insert(rank);
    }
    while (!list.empty()) {
      const std::size_t place = of_list.pick(list);
      const std::uint16_t picked = of_ranks.pick(ranks);
      EXPECT_EQ(picked, list[place]);
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(place));
      ranks.erase(picked);
    }
    EXPECT_EQ(of_list.take_decisions(), of_ranks.take_decisions());
    EXPECT_EQ(of_list.replay_diverged(), of_ranks.replay_diverged());
  }
}

}  // namespace
}  // namespace gradledger::testing
