// Which events every rank has behind it.
#include "ref/slowest_rank.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "sim/base/hash.h"

namespace gradledger::ref {
namespace {

TEST(the_slowest_rank, is_the_least_of_all_whoever_moves_on) {
  SplitMix64 random(1);
  for (std::uint32_t world : {1u, 2u, 7u}) {
    SlowestRank slowest(world);
    std::vector<std::uint32_t> done(world, 0);
    for (int i = 0; i < 500; ++i) {
      const std::uint32_t rank = random.below(world), event = done[rank] + random.below(3);  // a rank has no part in some events
      done[rank] = event + 1;
      ASSERT_EQ(slowest.done(rank, event), *std::min_element(done.begin(), done.end())) << "step " << i << " of " << world << " ranks";
    }
  }
}

}  // namespace
}  // namespace gradledger::ref
