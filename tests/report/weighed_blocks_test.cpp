// Blocks stand for the contributions that they are made of: each once, with its own weights.
#include "report/weighed_blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <tuple>

#include "sim/base/hash.h"

namespace gradledger {
namespace {

using report::Weighed;
using report::WeighedBlock;

std::vector<Weighed> taken_apart(const std::vector<WeighedBlock>& blocks) {
  std::vector<Weighed> all;
  for (const WeighedBlock& block : blocks)
    for (std::uint32_t m = block.weighed.contribution.micro_batch; m <= block.last_micro_batch; ++m)
      for (std::uint32_t r = block.weighed.contribution.rank; r <= block.last_rank; ++r) {
        all.push_back(block.weighed);
        all.back().contribution = {block.weighed.contribution.step, r, m};
      }
  return all;
}

auto key(const Weighed& w) { return std::tuple(w.contribution, w.expected, w.observed, w.misplaced, w.open); }

void expect_the_same(const std::vector<Weighed>& all) {
  std::multiset<decltype(key({}))> before, after;
  for (const Weighed& w : all) before.insert(key(w));
  for (const Weighed& w : taken_apart(report::blocks_of(all))) after.insert(key(w));
  EXPECT_EQ(before, after);
}

std::vector<Weighed> window(std::uint32_t ranks, std::uint32_t micro_batches) {
  std::vector<Weighed> all;
  for (std::uint32_t m = 0; m < micro_batches; ++m)
    for (std::uint32_t r = 0; r < ranks; ++r) all.push_back({{0, r, m}, 0.5, 0});
  return all;
}

TEST(blocks, of_a_window_with_one_weight_are_one) {
  const auto blocks = report::blocks_of(window(1024, 64));
  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_EQ(blocks[0].last_rank, 1023u);
  EXPECT_EQ(blocks[0].last_micro_batch, 63u);
  EXPECT_TRUE(report::blocks_of({}).empty());
}

TEST(blocks, end_where_anything_differs) {
  for (const auto& change : std::vector<void (*)(Weighed&)>{[](Weighed& w) { w.expected = 1; }, [](Weighed& w) { w.observed = NAN; }, [](Weighed& w) { w.misplaced = true; },
                                                            [](Weighed& w) { w.open = true; }, [](Weighed& w) { w.contribution.step = 1; }}) {
    std::vector<Weighed> all = window(4, 3);
    change(all[5]);  // rank 1 of the second micro-batch
    const auto blocks = report::blocks_of(all);
    EXPECT_EQ(blocks.size(), 5u) << "the first, rank 0, rank 1, ranks 2 and 3, the last";
    EXPECT_EQ(taken_apart(blocks).size(), 12u);
  }
}

TEST(blocks, hold_each_contribution_once_whatever_their_order_and_weights) {
  SplitMix64 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<Weighed> all;
    const auto ranks = static_cast<std::uint32_t>(1 + random.below(5)), micro_batches = static_cast<std::uint32_t>(1 + random.below(5));
    for (Weighed w : window(ranks, micro_batches)) {
      w.observed = static_cast<double>(random.below(3)) / 2;
      w.open = random.below(8) == 0;
      if (random.below(6) != 0) all.push_back(w);
    }
    for (std::size_t i = all.size(); round % 2 == 1 && i > 1; --i) std::swap(all[i - 1], all[random.below(static_cast<std::uint32_t>(i))]);
    expect_the_same(all);
  }
}

}  // namespace
}  // namespace gradledger
