// run_collective against a ring that is played step by step (collectives_ring.h): the same bits for every world, size, root and place.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/base/contract.h"
#include "tests/execution/collectives_ring.h"

namespace gradledger::testing {
namespace {

template <class T>
std::uint64_t compare_case(const Case& c) {
  SCOPED_TRACE(c.text() + " " + std::string(name_of(dtype_of<T>)));
  const T canary = from_bits<T>(0x1234);
  const std::vector<std::vector<T>> inputs = rank_inputs<T>(c.world, c.numel, c.numel + c.world);
  Ring<T> ring(inputs, c.output_numel(), canary, c.op == ReduceOp::avg);
  // Where reduce writes nothing, the in-place output still holds the input.
  if (c.in_place && c.kind == CollectiveKind::reduce) ring.outputs = inputs;
  switch (c.kind) {
    case CollectiveKind::all_reduce: ring.all_reduce(c.numel); break;
    case CollectiveKind::reduce: ring.reduce(c.numel, c.root); break;
    case CollectiveKind::reduce_scatter: ring.reduce_scatter(c.numel); break;
    case CollectiveKind::all_gather: ring.all_gather(c.numel); break;
    case CollectiveKind::broadcast: ring.broadcast(c.numel, c.root); break;
  }
  ring.play(c.numel * 31 + c.world);
  const std::vector<std::vector<T>> outputs = run(c, inputs, canary);
  std::uint64_t count = 0;
  for (std::size_t r = 0; r < c.world; ++r)
    for (std::size_t i = 0; i < c.output_numel(); ++i, ++count)
      if (bits(outputs[r][i]) != bits(ring.outputs[r][i])) {
        ADD_FAILURE() << "rank " << r << " element " << i << ": " << std::hex << bits(outputs[r][i]) << ", the ring gives " << bits(ring.outputs[r][i]);
        return count;
      }
  return count;
}

const std::size_t worlds[] = {1, 2, 3, 4, 5, 6, 7, 8, 16};
const std::vector<std::size_t> sizes = {1, 7, 1000, sanitized ? 259u : 4099u};

// Every world, size and place of one kind of collective; roots where it has any.
template <class T>
void compare_kind(CollectiveKind kind) {
  const bool reduces = kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce || kind == CollectiveKind::reduce_scatter;
  const bool rooted = kind == CollectiveKind::reduce || kind == CollectiveKind::broadcast;
  std::uint64_t count = 0;
  std::uint64_t expected = 0;
  for (std::size_t world : worlds)
    for (std::size_t size : sizes)
      for (ReduceOp op : {ReduceOp::sum, ReduceOp::avg})
        for (std::uint32_t root = 0; root < (rooted ? world : 1); ++root)
          for (bool in_place : {false, true}) {
            if (!reduces && op == ReduceOp::avg) continue;
            Case c{kind, op, world, size, root, in_place};
            if (kind == CollectiveKind::reduce_scatter) c.numel = size * world;
            count += compare_case<T>(c);
            expected += world * c.output_numel();
            if (::testing::Test::HasFailure()) return;
          }
  report_count(count, expected);
}

template <class T>
class ring_of : public ::testing::Test {};
TYPED_TEST_SUITE(ring_of, Dtypes, DtypeNames);

TYPED_TEST(ring_of, all_reduce_gives_the_bits_of_the_ring) { compare_kind<TypeParam>(CollectiveKind::all_reduce); }
TYPED_TEST(ring_of, reduce_gives_the_bits_of_the_ring_at_every_root) { compare_kind<TypeParam>(CollectiveKind::reduce); }
TYPED_TEST(ring_of, reduce_scatter_gives_the_bits_of_the_ring) { compare_kind<TypeParam>(CollectiveKind::reduce_scatter); }
TYPED_TEST(ring_of, all_gather_moves_every_rank_to_its_place) { compare_kind<TypeParam>(CollectiveKind::all_gather); }
TYPED_TEST(ring_of, broadcast_copies_the_root_from_every_root) { compare_kind<TypeParam>(CollectiveKind::broadcast); }

// ---- more than one loop ---------------------------------------------------------------------------------------------------------

template <class T>
void compare_long_all_reduce(std::size_t world, ReduceOp op, std::size_t whole_loops) {
  const std::size_t loop = world * (std::size_t{2} << 20) / sizeof(T);
  const Case c{CollectiveKind::all_reduce, op, world, whole_loops * loop + 5000, 0, false};
  const std::uint64_t count = compare_case<T>(c);
  report_count(count, world * c.numel);
}

// The last loop is a short one, cut into smaller chunks. Under sanitizers one whole loop less.
TEST(long_all_reduce, loops_of_fp32_over_2_ranks_give_the_bits_of_the_ring) { compare_long_all_reduce<float>(2, ReduceOp::avg, sanitized ? 1 : 2); }
TEST(long_all_reduce, loops_of_fp32_over_3_ranks_give_the_bits_of_the_ring) { compare_long_all_reduce<float>(3, ReduceOp::sum, sanitized ? 1 : 2); }
TEST(long_all_reduce, loops_of_bf16_over_3_ranks_give_the_bits_of_the_ring) { compare_long_all_reduce<Bf16>(3, ReduceOp::avg, sanitized ? 0 : 1); }

// The owner that all_reduce_owner names is the one whose chain the ring played; another owner's chain has other bits somewhere.
TEST(long_all_reduce, all_reduce_owner_names_the_end_of_each_chain) {
  constexpr std::size_t world = 3;
  std::uint64_t count = 0;
  std::uint64_t expected = 0;
  const std::size_t two_loops = 2 * world * (std::size_t{2} << 20) / sizeof(float);
  for (std::size_t n : {std::size_t{1}, std::size_t{7}, std::size_t{1000}, std::size_t{4099}, two_loops + 5000}) {
    Ring<float> ring(rank_inputs<float>(world, n, 77), n, 0.0f, false);
    const std::size_t step = n > 10'000 ? 997 : 1;
    const std::vector<std::vector<float>> outputs = run<float>({CollectiveKind::all_reduce, ReduceOp::sum, world, n}, ring.inputs, 0.0f);
    std::uint64_t others_differ = 0;
    for (std::size_t i = 0; i < n; i += step, ++count) {
      const std::uint32_t owner = all_reduce_owner(i, n, world, Dtype::float32);
      ASSERT_LT(owner, world);
      ASSERT_EQ(bits(outputs[0][i]), bits(chain(ring, i, owner))) << i << " of " << n;
      for (std::size_t other = 0; other < world; ++other) others_differ += bits(chain(ring, i, other)) != bits(outputs[0][i]);
    }
    expected += (n + step - 1) / step;
    if (n > 100) {
      EXPECT_GT(others_differ, 0u) << "any owner would do for " << n;
    }
  }
  report_count(count, expected);
  EXPECT_THROW(all_reduce_owner(7, 7, world, Dtype::float32), ContractViolation);
}

}  // namespace
}  // namespace gradledger::testing
