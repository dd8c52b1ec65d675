// The order in which NCCL adds: every element's chain around the ring, with one rounding at each hop, as docs/arithmetic.md states it. On a
// GPU this holds real NCCL to the host's prediction; elsewhere it holds the way there, with a stand-in, to the same.
#include "tests/gpu/collectives/comparison.h"
#include "tests/gpu/collectives/under_test.h"

namespace gradledger::testing {
namespace {

std::vector<std::uint32_t> first_ranks(std::uint32_t world) {
  std::vector<std::uint32_t> group;
  for (std::uint32_t r = 0; r < world; ++r) group.push_back(r);
  return group;
}

class collectives_under_test : public ::testing::TestWithParam<RanksUnderTest> {
 protected:
  void SetUp() override {
    if (const std::string why = GetParam().unavailable(); !why.empty()) GTEST_SKIP() << why;
    devices_ = GetParam().make();
  }
  void TearDown() override {
    if (IsSkipped()) return;
    RecordProperty("compared", std::to_string(compared_));
    EXPECT_GT(compared_, 0u) << "bytes compared";
  }

  void run(std::vector<std::uint32_t> group, const CollectiveCase& c, int repeats = 1) {
    CollectiveComparison comparison(*devices_, std::move(group));
    comparison.run(c, repeats);
    compared_ += comparison.bytes_compared();
  }

  // all_reduce, reduce to the last rank and reduce_scatter, sum and average, every dtype.
  void run_reductions(std::uint32_t world, std::uint32_t numel, bool special, int repeats) {
    for (Dtype dtype : {Dtype::float32, Dtype::bfloat16, Dtype::float16})
      for (ReduceOp op : {ReduceOp::sum, ReduceOp::avg})
        for (CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::reduce, CollectiveKind::reduce_scatter})
          ASSERT_NO_FATAL_FAILURE(run(first_ranks(world), {kind, op, dtype, numel, kind == CollectiveKind::reduce ? world - 1 : 0, special}, repeats));
  }

  std::unique_ptr<Devices> devices_;
  std::uint64_t compared_ = 0;
};
INSTANTIATE_TEST_SUITE_P(by, collectives_under_test, ::testing::ValuesIn(ranks_under_test()), [](const auto& info) { return info.param.name; });

TEST_P(collectives_under_test, add_in_ring_order_in_every_world_and_size) {
  for (std::uint32_t world = 2; world <= GetParam().world_max; ++world)
    for (std::uint32_t numel : {1u, 7u, 1000u, 4099u}) ASSERT_NO_FATAL_FAILURE(run_reductions(world, numel, false, 2));
}

TEST_P(collectives_under_test, add_in_ring_order_where_values_are_special) {
  for (std::uint32_t world : {2u, 3u, 4u}) ASSERT_NO_FATAL_FAILURE(run_reductions(world, 1000, true, 1));
}

// An all_reduce goes round in loops of `world` times 2 MiB; the last one is cut differently.
TEST_P(collectives_under_test, keep_the_order_through_several_loops) {
  for (std::uint32_t world : {2u, 3u, 4u}) {
    if (world > GetParam().world_max) continue;
    const std::uint32_t loop = world * (2u << 20) / 2;  // elements of 16 bits
    for (std::uint32_t numel : {loop - 1, loop, loop + 1, 2 * loop + 12'345}) {
      if (numel > GetParam().numel_max) continue;
      ASSERT_NO_FATAL_FAILURE(run(first_ranks(world), {CollectiveKind::all_reduce, ReduceOp::avg, Dtype::bfloat16, numel}));
      ASSERT_NO_FATAL_FAILURE(run(first_ranks(world), {CollectiveKind::all_reduce, ReduceOp::sum, Dtype::float32, numel}));
    }
  }
}

TEST_P(collectives_under_test, move_data_unchanged_between_any_members) {
  for (const std::vector<std::uint32_t>& group : {std::vector<std::uint32_t>{0, 1}, {1, 2}, {0, 2}, {0, 1, 2}})
    for (Dtype dtype : {Dtype::float32, Dtype::bfloat16}) {
      ASSERT_NO_FATAL_FAILURE(run(group, {CollectiveKind::all_gather, ReduceOp::sum, dtype, 1001, 0, true}));
      ASSERT_NO_FATAL_FAILURE(run(group, {CollectiveKind::broadcast, ReduceOp::sum, dtype, 1001, static_cast<std::uint32_t>(group.size() - 1), true}));
    }
}

TEST_P(collectives_under_test, sum_totals_of_fp64_around_the_ring_and_take_the_largest_flag) {
  for (std::uint32_t world = 2; world <= GetParam().world_max; ++world) {
    ASSERT_NO_FATAL_FAILURE(run(first_ranks(world), {CollectiveKind::all_reduce, ReduceOp::sum, Dtype::float64, 1}));
    ASSERT_NO_FATAL_FAILURE(run(first_ranks(world), {CollectiveKind::all_reduce, ReduceOp::max, Dtype::uint8, 1}));
  }
}

TEST_P(collectives_under_test, give_the_same_bits_in_place) {
  for (std::uint32_t world : {2u, 3u})
    for (Dtype dtype : {Dtype::float32, Dtype::bfloat16, Dtype::float16}) {
      ASSERT_NO_FATAL_FAILURE(run(first_ranks(world), {CollectiveKind::all_reduce, ReduceOp::avg, dtype, 4099, 0, false, true}));
      ASSERT_NO_FATAL_FAILURE(run(first_ranks(world), {CollectiveKind::reduce, ReduceOp::sum, dtype, 4099, world - 1, false, true}));
    }
}

}  // namespace
}  // namespace gradledger::testing
