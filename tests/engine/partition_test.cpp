#include "sim/engine/partition.h"

#include <gtest/gtest.h>

#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

// Every element of every parameter, and who owns it, from the definition: element offset / partition size.
void expect_partition(const std::vector<std::uint32_t>& sizes, std::uint32_t world, bool round_robin) {
  const FlatPartition layout(base_scenario(world, sizes, Dtype::float32), round_robin);
  EXPECT_EQ(layout.padded() % (2 * world), 0u);
  EXPECT_GE(layout.padded(), layout.numel());
  EXPECT_LT(layout.padded() - layout.numel(), 2 * world);
  std::vector<int> owners(layout.padded(), 0);
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    for (const OwnedPart& part : layout.parts(rank)) {
      for (std::uint32_t i = 0; i < part.numel; ++i) {
        const std::uint32_t flat = layout.offset(part.parameter) + part.parameter_offset + i;
        EXPECT_EQ(flat / layout.partition(), rank);
        EXPECT_EQ(flat % layout.partition(), part.partition_offset + i);
        ++owners[flat];
      }
    }
  }
  for (std::uint32_t i = 0; i < layout.numel(); ++i) EXPECT_EQ(owners[i], 1) << "element " << i;
  for (std::uint32_t i = layout.numel(); i < layout.padded(); ++i) EXPECT_EQ(owners[i], 0);
}

TEST(flat_partition, gives_every_element_to_exactly_one_rank) {
  for (std::uint32_t world : {1u, 2u, 3u, 4u, 7u, 8u})
    for (const std::vector<std::uint32_t>& sizes : std::vector<std::vector<std::uint32_t>>{{1}, {30, 21, 13}, {40, 41, 17}, {1, 1, 1}, {5, 0, 9}, {100}, {29, 14, 15}})
      for (bool round_robin : {false, true}) expect_partition(sizes, world, round_robin);
}

TEST(flat_partition, round_robin_deals_parameters_out_by_index) {
  const FlatPartition layout(base_scenario(2, {3, 4, 5, 6}, Dtype::float32), true);
  EXPECT_EQ(layout.order(), (std::vector<std::uint32_t>{0, 2, 1, 3}));
  EXPECT_EQ(layout.offset(1), 8u);
}

TEST(parameter_shards, cover_a_parameter_and_leave_late_ranks_without_data) {
  for (std::uint32_t world : {1u, 2u, 3u, 5u, 8u}) {
    for (std::uint32_t numel : {0u, 1u, 2u, 7u, 8u, 9u, 64u}) {
      std::uint32_t covered = 0;
      for (std::uint32_t rank = 0; rank < world; ++rank) {
        const ParameterShard shard = shard_of(numel, world, rank);
        EXPECT_EQ(shard.size, (numel + world - 1) / world);
        EXPECT_EQ(shard.offset, covered);
        EXPECT_LE(shard.real, shard.size);
        covered += shard.real;
      }
      EXPECT_EQ(covered, numel);
    }
  }
}

}  // namespace
}  // namespace gradledger::testing
