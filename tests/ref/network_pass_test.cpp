// What a GPU would compute of a network, on the CPU: the products, their order and the functions between them.
#include <gtest/gtest.h>

#include <cmath>

#include "ref/mlp_source.h"
#include "sim/numeric/layers.h"
#include "tests/support/network_device.h"
#include "tests/support/networks.h"

namespace gradledger::testing {
namespace {

TEST(network_pass, of_the_device_lies_within_the_bound_for_random_shapes) {
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    const Scenario s = random_network(seed);
    const auto timeline = make_timeline(s);
    const ref::MlpSource source(s, *timeline, seed);
    ReplayedAutograd autograd(s, source);
    std::vector<std::vector<float>> gradients;
    for (const std::uint32_t rank : {0u, 1u}) {  // the second run finds what the first left behind
      autograd.run(1, rank, gradients);
      for (std::uint32_t p = 0; p < s.parameters.size(); ++p) {
        std::vector<double> value(s.parameters[p].numel), error(value.size());
        source.gradient(1, rank, p, 0, value);
        source.gradient_error(1, rank, p, 0, error);
        for (std::size_t i = 0; i < value.size(); ++i) ASSERT_LE(std::abs(gradients[p][i] - value[i]), error[i]) << "seed " << seed << ", " << s.parameters[p].name << " " << i;
      }
    }
    std::size_t biases = 0;
    for (const LinearLayer& layer : s.gradients.mlp->layers) biases += layer.bias.has_value();
    EXPECT_EQ(autograd.gemms(), 2 * (3 * s.gradients.mlp->layers.size() - 1 + biases));
  }
}

TEST(network_pass, puts_products_of_rows_as_products_of_columns) {
  const std::vector<float> a{1, 2, 3, 4, 5, 6}, b{1, 10, 100, 1000, 10000, 100000};  // 2 x 3 and 3 x 2, or their transposes
  const auto product = [&](bool transpose_a, bool transpose_b) {
    std::vector<float> c(4);
    CpuDevice device;
    device.gemm(gpu::row_major_product(transpose_a, transpose_b, 2, 2, 3, a.data(), b.data(), c.data()));
    return c;
  };
  EXPECT_EQ(product(false, false), (std::vector<float>{30201, 302010, 60504, 605040}));
  EXPECT_EQ(product(true, false), (std::vector<float>{50301, 503010, 60402, 604020}));
  EXPECT_EQ(product(false, true), (std::vector<float>{321, 321000, 654, 654000}));
  EXPECT_EQ(product(true, true), (std::vector<float>{531, 531000, 642, 642000}));
}

// The C library's erff and expf here, CUDA's there, our own in the simulator: each within the roundings that docs/arithmetic.md counts, so
// two of them differ by at most twice as much.
TEST(network_pass, has_the_functions_of_the_simulator) {
  const float u = std::ldexp(1.0f, -24);
  for (int k = -4096; k <= 4096; ++k) {
    const float x = static_cast<float>(k) / 512;
    EXPECT_LE(std::abs(gpu::Gelu{}(x)-numeric::gelu(x)), 2 * 6 * u * std::abs(x)) << x;
    EXPECT_LE(std::abs(gpu::GeluBackward{}(1.0f, x) - numeric::gelu_slope(x)), 2 * 10 * u) << x;
    EXPECT_EQ(gpu::Relu{}(x), std::max(x, 0.0f));
    EXPECT_EQ(gpu::ReluBackward{}(3.0f, x), x > 0 ? 3.0f : 0.0f);
  }
  EXPECT_EQ(gpu::SquaredErrorGradient{0.5f}(7, 3), 2.0f);
}

}  // namespace
}  // namespace gradledger::testing
