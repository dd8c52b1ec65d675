// What the bits of a reduction depend on: the fused multiply-add, the order of the ranks, the rounding at each hop. And the dtypes
// that only carry totals and flags.
#include <gtest/gtest.h>

#include <span>
#include <utility>
#include <vector>

#include "sim/base/contract.h"
#include "tests/execution/collectives_ring.h"

namespace gradledger::testing {
namespace {

// Elements whose average over `world` ranks has other bits when the product is rounded before it is added.
template <class T>
std::uint64_t elements_that_need_fusion(std::size_t world) {
  constexpr std::size_t n = 4099;
  std::vector<std::vector<T>> inputs;
  const reference::Format f = reference::format_of<T>;
  for (std::size_t r = 0; r < world; ++r) {
    Random random(500 + r);
    std::vector<T> data(n);  // 1..2, both signs: nothing under- or overflows
    for (T& x : data) {
      const std::uint32_t one = (f.infinity() / 2) & ~((1u << (f.digits - 1)) - 1);
      x = from_bits<T>(one | (random.next() & ((1u << (f.digits - 1)) - 1)) | (random.next() & f.sign_bit()));
    }
    inputs.push_back(data);
  }
  const std::vector<std::vector<T>> outputs = run<T>({CollectiveKind::reduce, ReduceOp::avg, world, n}, inputs, T{});
  const Ring<T> ring(inputs, n, T{}, true);
  std::uint64_t different = 0;
  for (std::size_t i = 0; i < n; ++i) {
    EXPECT_EQ(bits(outputs[0][i]), bits(chain(ring, i, 0)));
    std::uint32_t sum = bits(ring.first_hop(inputs[1 % world][i]));
    for (std::size_t hop = 2; hop <= world; ++hop) sum = reference::add(f, reference::multiply(f, bits(inputs[hop % world][i]), ring.scalar_bits()), sum);
    different += sum != bits(outputs[0][i]);
  }
  ::testing::Test::RecordProperty("need_fusion", std::to_string(different));
  return different;
}

template <class T>
class chain_of : public ::testing::Test {};
TYPED_TEST_SUITE(chain_of, Dtypes, DtypeNames);

TYPED_TEST(chain_of, averages_over_3_5_6_and_7_ranks_need_the_fused_multiply_add) {
  for (std::size_t world : {3u, 5u, 6u, 7u}) EXPECT_GT(elements_that_need_fusion<TypeParam>(world), 0u) << world;
}
TYPED_TEST(chain_of, averages_over_powers_of_two_do_not_need_it) {
  for (std::size_t world : {2u, 4u, 8u}) EXPECT_EQ(elements_that_need_fusion<TypeParam>(world), 0u) << world;
}

// Elements of a sum at rank 0 that have other bits when the first two ranks exchange their data.
template <class T>
std::uint64_t elements_that_depend_on_order(std::size_t world) {
  constexpr std::size_t n = 4099;
  std::vector<std::vector<T>> inputs = rank_inputs<T>(world, n, 900);
  const Case c{CollectiveKind::reduce, ReduceOp::sum, world, n};
  const std::vector<std::vector<T>> outputs = run(c, inputs, T{});
  std::swap(inputs[0], inputs[1]);
  const std::vector<std::vector<T>> swapped = run(c, inputs, T{});
  std::uint64_t different = 0;
  for (std::size_t i = 0; i < n; ++i) different += bits(outputs[0][i]) != bits(swapped[0][i]);
  return different;
}

TYPED_TEST(chain_of, a_sum_over_2_ranks_does_not_depend_on_their_order_and_over_3_it_does) {
  EXPECT_EQ(elements_that_depend_on_order<TypeParam>(2), 0u);
  EXPECT_GT(elements_that_depend_on_order<TypeParam>(3), 0u);
}

// Rounding at each hop is not accumulating in fp32 and rounding once.
TEST(rounding, a_16_bit_sum_rounds_at_each_hop) {
  constexpr std::size_t n = 4099;
  const Case c{CollectiveKind::reduce, ReduceOp::sum, 4, n};
  const std::vector<std::vector<Bf16>> inputs = rank_inputs<Bf16>(4, n, 3);
  const std::vector<std::vector<Bf16>> at_each_hop = run(c, inputs, Bf16{});
  const std::vector<std::vector<Bf16>> once = run(c, inputs, Bf16{}, CollectiveArithmetic::gloo_fp32);
  std::uint64_t different = 0;
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < n; ++i, ++count) {
    const auto widened = [&](std::size_t rank) { return reference::convert(reference::fp32, reference::bf16, bits(inputs[rank][i])); };
    std::uint32_t wide = widened(1);
    for (std::size_t rank : {2u, 3u, 0u}) wide = reference::add(reference::fp32, wide, widened(rank));
    ASSERT_EQ(bits(once[0][i]), reference::convert(reference::bf16, reference::fp32, wide)) << i;
    different += bits(once[0][i]) != bits(at_each_hop[0][i]);
  }
  EXPECT_GT(different, 0u);
  report_count(count, n);
}

// ---- the other dtypes, and what is refused --------------------------------------------------------------------------------------

TEST(other_collectives, max_of_flags_keeps_any_flag) {
  std::vector<std::vector<std::uint8_t>> flags = {{0, 0, 1, 7}, {0, 2, 0, 7}, {0, 0, 0, 9}};
  std::vector<CollectiveBuffers> buffers;
  for (auto& f : flags) buffers.push_back({reinterpret_cast<const std::byte*>(f.data()), reinterpret_cast<std::byte*>(f.data())});
  run_collective(CollectiveKind::all_reduce, ReduceOp::max, Dtype::uint8, 4, 0, CollectiveArithmetic::nccl_ring, buffers);
  for (const auto& f : flags) EXPECT_EQ(f, (std::vector<std::uint8_t>{0, 2, 1, 9}));
}

std::vector<std::vector<double>> totals_of_three(CollectiveArithmetic arithmetic) {
  std::vector<std::vector<double>> totals = {{1.0, 0.1}, {0x1p-53, 0.2}, {0x1p-53, 0.3}};
  std::vector<CollectiveBuffers> buffers;
  for (auto& t : totals) buffers.push_back({reinterpret_cast<const std::byte*>(t.data()), reinterpret_cast<std::byte*>(t.data())});
  run_collective(CollectiveKind::all_reduce, ReduceOp::sum, Dtype::float64, 2, 0, arithmetic, buffers);
  return totals;
}

// Both elements are rank 0's, so their chain starts at rank 1.
TEST(other_collectives, fp64_totals_add_around_the_ring_of_nccl) {
  for (const auto& t : totals_of_three(CollectiveArithmetic::nccl_ring)) EXPECT_EQ(t, (std::vector<double>{(0x1p-53 + 0x1p-53) + 1.0, (0.2 + 0.3) + 0.1}));
}

TEST(other_collectives, fp64_totals_of_a_cpu_backend_add_in_rank_order) {
  for (const auto& t : totals_of_three(CollectiveArithmetic::gloo_fp32)) EXPECT_EQ(t, (std::vector<double>{(1.0 + 0x1p-53) + 0x1p-53, (0.1 + 0.2) + 0.3}));
}

TEST(other_collectives, calls_outside_the_contract_are_refused) {
  std::vector<float> data(8);
  const CollectiveBuffers one{reinterpret_cast<const std::byte*>(data.data()), reinterpret_cast<std::byte*>(data.data())};
  const std::vector<CollectiveBuffers> three(3, one);
  const auto call = [&](CollectiveKind kind, ReduceOp op, std::uint32_t n, std::uint32_t root, std::span<const CollectiveBuffers> ranks) {
    run_collective(kind, op, Dtype::float32, n, root, CollectiveArithmetic::nccl_ring, ranks);
  };
  EXPECT_THROW(call(CollectiveKind::reduce_scatter, ReduceOp::sum, 8, 0, three), ContractViolation);
  EXPECT_THROW(call(CollectiveKind::reduce, ReduceOp::sum, 8, 3, three), ContractViolation);
  EXPECT_THROW(call(CollectiveKind::all_reduce, ReduceOp::max, 8, 0, three), ContractViolation);
  EXPECT_THROW(call(CollectiveKind::all_reduce, ReduceOp::sum, 8, 0, {}), ContractViolation);
}

}  // namespace
}  // namespace gradledger::testing
