// Between two barriers the order of the threads must not matter: each phase is replayed in many orders, and a program with a
// race shows that the replay would tell.
#include <gtest/gtest.h>

#include <vector>

#include "gpu/tree_sum.h"
#include "sim/numeric/kernels.h"
#include "tests/gpu/twins/replay.h"
#include "tests/numeric/operands.h"

namespace gradledger::testing {
namespace {

std::vector<float> random_floats(std::size_t n) {
  Random random(n);
  std::vector<float> elements(n);
  for (float& x : elements) x = from_bits<float>(random.next() & 0xBFFFFFFFu);
  return elements;
}

// Odd strides: each is another permutation of the 256 threads; 255 is the reverse order.
const std::size_t strides[] = {1, 3, 7, 85, 127, 129, 255};

using SumOfSquares = gpu::ChunkSum<gpu::Squares<float>>;

template <class Program>
std::vector<std::uint64_t> sums_in_every_order(const std::vector<float>& elements) {
  std::vector<std::uint64_t> all;
  for (std::size_t stride : strides) {
    std::vector<double> sums(gpu::chunks_of(elements.size()), -1.0);
    ReplayPhased{{stride}}(Program{SumOfSquares{{elements.data()}, elements.size(), sums.data()}}, sums.size());
    all.push_back(bits(sums.back()));
  }
  return all;
}

// The halving phases without barriers between them: what a kernel with a forgotten __syncthreads does.
struct WithoutBarriers : SumOfSquares {
  static constexpr unsigned phases = 3;

  void run(unsigned phase, std::size_t block, std::size_t thread, Shared& shared) const {
    if (phase == 1)
      for (unsigned halving = 1; halving <= halvings; ++halving) SumOfSquares::run(halving, block, thread, shared);
    else SumOfSquares::run(phase == 0 ? 0 : halvings + 1, block, thread, shared);
  }
};

TEST(phases, any_order_of_the_threads_within_a_phase_gives_the_bits_of_the_host) {
  std::uint64_t count = 0;
  for (std::size_t n : {1, 2, 255, 256, 257, 4000, 4096}) {
    const std::vector<float> elements = random_floats(n);
    const std::uint64_t expected = bits(numeric::squared_norm(Dtype::float32, elements.data(), n));
    for (std::uint64_t sum : sums_in_every_order<SumOfSquares>(elements)) {
      EXPECT_EQ(sum, expected) << "length " << n;
      ++count;
    }
  }
  report_count(count, 7 * std::size(strides));
}

TEST(phases, a_missing_barrier_shows_as_other_bits) {
  const std::vector<float> elements = random_floats(4096);
  const std::uint64_t expected = bits(numeric::squared_norm(Dtype::float32, elements.data(), elements.size()));
  std::size_t different = 0;
  for (std::uint64_t sum : sums_in_every_order<WithoutBarriers>(elements)) different += sum != expected;
  EXPECT_GT(different, 0u);
}

TEST(phases, the_workspace_has_room_for_every_level) {
  EXPECT_EQ(gpu::workspace_numel(0), 0u);
  EXPECT_EQ(gpu::workspace_numel(4096), 0u);
  EXPECT_EQ(gpu::workspace_numel(4097), 2u);
  EXPECT_EQ(gpu::workspace_numel(4096 * 4096), 4096u);
  EXPECT_EQ(gpu::workspace_numel(4096 * 4096 + 1), 4097u + 2u);
}

}  // namespace
}  // namespace gradledger::testing
