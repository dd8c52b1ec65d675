// The index arithmetic of the element-wise kernels: every element once, none outside, vectors only where all arrays are aligned.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "gpu/elementwise.h"
#include "sim/base/contract.h"
#include "tests/gpu/twins/replay.h"
#include "tests/numeric/operands.h"

namespace gradledger::testing {
namespace {

// Records what a launch touches, over arrays of element sizes `Sizes` at addresses that are never read.
template <std::size_t... sizes>
struct Probe {
  static constexpr std::size_t width = gpu::vector_bytes / std::max({sizes...});

  struct Record {
    std::vector<unsigned> touched;
    std::uint64_t outside = 0, misaligned = 0, mixed_up = 0, in_packs = 0;
  };
  std::array<std::uintptr_t, sizeof...(sizes)> address;
  Record* record;

  bool aligned_at(std::size_t i) const {
    const std::array<std::size_t, sizeof...(sizes)> size = {sizes...};
    bool all = true;
    for (std::size_t a = 0; a < size.size(); ++a) all &= (address[a] + i * size[a]) % (width * size[a]) == 0;
    return all;
  }
  // As large as a vector, so that several packs are in flight.
  struct Fetched {
    std::size_t first, count;
  };
  template <std::size_t w>
  Fetched fetch(std::size_t i) const {
    return {i, w};
  }
  template <std::size_t w>
  void finish(std::size_t i, Fetched fetched) const {
    if (w > 1 && !aligned_at(i)) ++record->misaligned;
    if (fetched.first != i || fetched.count != w) ++record->mixed_up;
    for (std::size_t k = i; k < i + w; ++k)
      if (k < record->touched.size()) ++record->touched[k];
      else ++record->outside;
    if (w > 1) record->in_packs += w;
  }
};

// One launch of each of several grids; returns how many elements went through vectors.
template <std::size_t... sizes>
std::uint64_t expect_each_element_once(std::size_t n, std::array<std::size_t, sizeof...(sizes)> offsets) {
  using Recorder = Probe<sizes...>;
  static_assert(gpu::packs_in_flight<Recorder> == 4);
  const std::array<std::size_t, sizeof...(sizes)> size = {sizes...};
  std::uint64_t in_packs = 0;
  for (gpu::LaunchShape shape : {gpu::LaunchShape{0, 0}, {1, 1}, {1, 32}, {3, 96}, {7, 256}, {64, 5}}) {
    typename Recorder::Record record{std::vector<unsigned>(n)};
    Recorder probe{{}, &record};
    for (std::size_t a = 0; a < size.size(); ++a) probe.address[a] = 4096 + offsets[a] * size[a];
    Replay{shape, {shape.blocks % 2 ? 1u : 31u}}(probe, n);
    EXPECT_EQ(record.touched, std::vector<unsigned>(n, 1));
    EXPECT_EQ(record.outside, 0u);
    EXPECT_EQ(record.misaligned, 0u);
    EXPECT_EQ(record.mixed_up, 0u);
    in_packs = record.in_packs;
  }
  return in_packs;
}

std::vector<std::size_t> lengths() {
  std::vector<std::size_t> all;
  for (std::size_t n = 0; n <= 70; ++n) all.push_back(n);
  all.insert(all.end(), {255, 256, 257, 1023, 4095, 4096, 4097, 20'011});
  return all;
}

// All misalignments of two arrays against each other.
template <std::size_t first, std::size_t second>
void expect_each_element_once_of_two() {
  std::uint64_t count = 0;
  for (std::size_t n : lengths())
    for (std::size_t a = 0; a < gpu::vector_bytes / first; ++a)
      for (std::size_t b = 0; b < gpu::vector_bytes / second; ++b, ++count) {
        expect_each_element_once<first, second>(n, {a, b});
        ASSERT_FALSE(::testing::Test::HasFailure()) << "length " << n << ", offsets " << a << " and " << b;
      }
  report_count(count, lengths().size() * (gpu::vector_bytes / first) * (gpu::vector_bytes / second));
}

TEST(launches, touch_each_element_once_and_none_outside_for_equal_sizes) {
  expect_each_element_once_of_two<8, 8>();
  expect_each_element_once_of_two<4, 4>();
  expect_each_element_once_of_two<2, 2>();
}

TEST(launches, touch_each_element_once_and_none_outside_for_different_sizes) {
  expect_each_element_once_of_two<4, 2>();
  expect_each_element_once_of_two<2, 4>();
  expect_each_element_once_of_two<8, 2>();
  expect_each_element_once_of_two<4, 8>();
}

TEST(launches, touch_each_element_once_for_four_arrays_and_for_bytes) {
  for (std::size_t n : lengths())
    for (std::size_t offset = 0; offset < 16; ++offset) {
      expect_each_element_once<4, 4, 4, 4>(n, {offset, offset, offset, offset});
      expect_each_element_once<4, 4, 4, 4>(n, {offset, 1, 2, 3});
      expect_each_element_once<1>(n, {offset});
      ASSERT_FALSE(HasFailure()) << "length " << n << ", offset " << offset;
    }
}

TEST(launches, use_vectors_for_all_but_a_short_head_and_tail_where_alignment_allows) {
  const std::uint64_t n = 20'011;
  EXPECT_EQ((expect_each_element_once<4, 4>(n, {0, 0})), n / 4 * 4);
  EXPECT_EQ((expect_each_element_once<4, 4>(n, {3, 3})), (n - 1) / 4 * 4);
  EXPECT_EQ((expect_each_element_once<4, 2>(n, {0, 0})), n / 4 * 4);
  EXPECT_EQ((expect_each_element_once<4, 2>(n, {4, 4})), n / 4 * 4) << "half a vector of the smaller type";
  EXPECT_EQ((expect_each_element_once<4, 2>(n, {1, 5})), (n - 3) / 4 * 4);
  EXPECT_EQ((expect_each_element_once<2, 2>(n, {7, 7})), (n - 1) / 8 * 8);
  EXPECT_EQ((expect_each_element_once<1>(n, {5})), (n - 11) / 16 * 16);
  EXPECT_EQ((expect_each_element_once<4, 4>(n, {0, 1})), 0u) << "no head aligns both";
  EXPECT_EQ((expect_each_element_once<4, 2>(n, {0, 2})), 0u) << "no head aligns both";
}

TEST(launches, have_a_thread_for_each_unit_up_to_a_limit) {
  for (std::size_t units : {1, 2, 255, 256, 257, 100'000}) {
    const gpu::LaunchShape shape = gpu::launch_shape(units);
    EXPECT_GE(std::size_t{shape.blocks} * shape.threads, units);
    EXPECT_LT((std::size_t{shape.blocks} - 1) * shape.threads, units);
  }
  EXPECT_EQ(gpu::launch_shape(std::size_t{1} << 40).blocks, gpu::blocks_max);
}

TEST(launches, a_vector_at_a_misaligned_address_breaks_the_contract) {
  alignas(16) float storage[9] = {};
  EXPECT_NO_THROW(gpu::load<4>(static_cast<const float*>(storage)));
  EXPECT_THROW(gpu::load<4>(static_cast<const float*>(storage + 1)), ContractViolation);
  EXPECT_THROW(gpu::store(storage + 2, gpu::Pack<float, 4>{}), ContractViolation);
  EXPECT_NO_THROW(gpu::load<1>(static_cast<const float*>(storage + 1)));
}

}  // namespace
}  // namespace gradledger::testing
