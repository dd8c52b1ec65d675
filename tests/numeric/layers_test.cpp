// The functions of a network against the C library in fp64, and its sums against their definition.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "sim/base/hash.h"
#include "sim/numeric/layers.h"

namespace gradledger::testing {
namespace {

// In units of the last place of the fp32 value nearest to the exact one.
double ulps(float found, double exact) {
  const double nearest = std::abs(exact);
  const double ulp = std::ldexp(1.0, std::max(std::ilogb(nearest), -126) - 23);
  return std::abs(found - exact) / ulp;
}

// Every 4096th float up to 16, both signs, and the largest.
template <class Check>
void for_many_arguments(Check&& check) {
  for (std::uint32_t bits = 0; bits < std::bit_cast<std::uint32_t>(16.0f); bits += 4096)
    for (const float sign : {1.0f, -1.0f}) check(sign * std::bit_cast<float>(bits));
  check(std::numeric_limits<float>::max());
  check(-std::numeric_limits<float>::max());
}

TEST(layers, error_function_and_exponential_are_within_one_ulp) {
  for_many_arguments([](float x) {
    const double exact = std::erf(static_cast<double>(x));
    if (exact != 0) {
      EXPECT_LT(ulps(numeric::error_function(x), exact), 1.0) << x;
    }
    if (x > 0) return;
    EXPECT_LT(ulps(numeric::exponential(x), std::exp(static_cast<double>(x))), 1.0) << x;
  });
  EXPECT_EQ(numeric::error_function(0.0f), 0.0f);
  EXPECT_TRUE(std::isnan(numeric::error_function(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(numeric::exponential(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_EQ(numeric::exponential(-std::numeric_limits<float>::infinity()), 0.0f);
}

// The roundings that docs/arithmetic.md counts: 3 and 3 ulp more of the argument, 4 and 6 more of 1.
TEST(layers, gelu_and_its_slope_are_within_the_roundings_that_the_bound_allows) {
  const double u = std::ldexp(1.0, -24);
  for_many_arguments([&](float x) {
    const double z = x, distribution = 0.5 * std::erfc(-z / std::numbers::sqrt2);
    const double density = std::exp(-z * z / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    EXPECT_LE(std::abs(numeric::gelu(x) - z * distribution), 6 * u * std::abs(z) + std::numeric_limits<float>::min()) << x;
    EXPECT_LE(std::abs(numeric::gelu_slope(x) - (distribution + z * density)), 10 * u) << x;
  });
}

TEST(layers, sums_are_those_of_their_definition) {
  const std::vector<float> weight{1, 2, 3, 4, 5, 6}, bias{100, 200}, x{1, 10, 100}, gradient{2, 3};
  std::vector<float> y(2), input_gradient(3, -1.0f), weight_gradient(6, 1.0f), bias_gradient(2, 1.0f);
  numeric::linear(weight.data(), bias.data(), x.data(), y.data(), 3, 2);
  EXPECT_EQ(y, (std::vector<float>{421, 854}));
  numeric::linear(weight.data(), nullptr, x.data(), y.data(), 3, 2);
  EXPECT_EQ(y, (std::vector<float>{321, 654}));
  numeric::linear_input_gradient(weight.data(), gradient.data(), input_gradient.data(), 3, 2);
  EXPECT_EQ(input_gradient, (std::vector<float>{14, 19, 24}));
  numeric::linear_parameter_gradients(x.data(), gradient.data(), weight_gradient.data(), bias_gradient.data(), 3, 2);
  EXPECT_EQ(weight_gradient, (std::vector<float>{3, 21, 201, 4, 31, 301}));
  EXPECT_EQ(bias_gradient, (std::vector<float>{3, 4}));
  numeric::squared_error_gradient(y.data(), bias.data(), 0.5f, y.data(), 2);
  EXPECT_EQ(y, (std::vector<float>{110.5, 227}));
}

}  // namespace
}  // namespace gradledger::testing
