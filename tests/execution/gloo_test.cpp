// What PyTorch's gloo of today does with a sum over ranks: where it divides, where it multiplies, and in which order ranks come. The recorded runs of
// fully_shard over three and four ranks show the same.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "sim/execution/collectives.h"

namespace gradledger {
namespace {

using Values = std::vector<float>;

std::vector<Values> run(CollectiveKind kind, ReduceOp op, std::vector<Values> inputs, double factor = 1) {
  const std::size_t world = inputs.size(), numel = inputs.front().size();
  std::vector<Values> outputs(world, Values(kind == CollectiveKind::reduce_scatter ? numel / world : numel));
  std::vector<CollectiveBuffers> buffers;
  for (std::size_t r = 0; r < world; ++r) buffers.push_back({reinterpret_cast<const std::byte*>(inputs[r].data()), reinterpret_cast<std::byte*>(outputs[r].data())});
  run_collective(kind, op, Dtype::float32, static_cast<std::uint32_t>(numel), 0, CollectiveArithmetic::gloo, buffers, factor);
  return outputs;
}

// Elements whose sums differ with the order of their terms: no two ranks have values of one size.
std::vector<Values> of_mixed_sizes(std::size_t world, std::size_t numel) {
  std::vector<Values> out(world, Values(numel));
  for (std::size_t r = 0; r < world; ++r)
    for (std::size_t i = 0; i < numel; ++i) out[r][i] = std::ldexp(1.0f + static_cast<float>(i + r) / 7.0f, static_cast<int>((r * 5 + i * 3) % 13));
  return out;
}

TEST(gloo_average, is_divided_once_behind_the_sum) {
  const std::vector<Values> outputs = run(CollectiveKind::all_reduce, ReduceOp::avg, {{0.1f}, {0.2f}, {0.4f}});
  const float sum = 0.2f + 0.4f + 0.1f;
  EXPECT_EQ(outputs[0][0], sum / 3.0f);
  EXPECT_EQ(outputs[0], outputs[2]);
}

TEST(gloo_premultiplied_sum, multiplies_what_each_rank_hands_over) {
  const std::vector<Values> outputs = run(CollectiveKind::all_reduce, ReduceOp::premultiplied_sum, {{0.1f}, {0.5f}}, 1.0 / 3);
  const auto third = static_cast<float>(1.0 / 3);
  EXPECT_EQ(outputs[0][0], 0.5f * third + 0.1f * third);
  EXPECT_NE(outputs[0][0], (0.5f + 0.1f) * third) << "the values tell one from the other";
}

// Stretches are those of an all_reduce of the whole: two neighbouring segments of 2 x world.
TEST(gloo_reduce_scatter, goes_down_through_the_ranks_to_the_owner_of_a_stretch) {
  for (const auto& [world, chunk] : {std::pair<std::size_t, std::size_t>{3, 7}, {4, 5}, {4, 3}, {2, 6}}) {
    const std::size_t numel = world * chunk, stretch = 2 * ((numel + 2 * world - 1) / (2 * world));
    const std::vector<Values> inputs = of_mixed_sizes(world, numel);
    const std::vector<Values> outputs = run(CollectiveKind::reduce_scatter, ReduceOp::sum, inputs);
    for (std::size_t i = 0; i < numel; ++i) {
      const std::size_t owner = i / stretch;
      float sum = inputs[(owner + world - 1) % world][i];
      for (std::size_t hop = 2; hop <= world; ++hop) sum += inputs[(owner + world - hop) % world][i];
      EXPECT_EQ(outputs[i / chunk][i % chunk], sum) << world << " ranks, element " << i;
    }
  }
}

}  // namespace
}  // namespace gradledger
