// Bounds hold for whatever a correctly rounded run computes, and are no wider than the analysis says.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "ref/bounded.h"
#include "ref/dtype_facts.h"

namespace gradledger::testing {
namespace {

using ref::Bounded;
using ref::Rounding;

const Rounding fp32{ref::facts_of(Dtype::float32).unit_roundoff(), ref::facts_of(Dtype::float32).tiny()};

// A computation carried along three ways: as fp32 hardware runs it, as bounds, and in long double as the truth.
struct Carried {
  float run = 0;
  Bounded bounded;
  long double truth = 0;
};

Carried given(float x) { return {x, {x, 0.0}, x}; }

bool covers(const Carried& c) {
  return std::abs(static_cast<double>(c.run) - c.bounded.value) <= c.bounded.error &&
         std::abs(c.truth - static_cast<long double>(c.bounded.value)) <= static_cast<long double>(c.bounded.error);
}

// Signs, exponents over 2^-40 to 2^40 and all fractions.
float any_float(std::mt19937& random) {
  const float fraction = 1.0f + static_cast<float>(random() & 0x7FFFFF) / 8388608.0f;
  const float magnitude = std::ldexp(fraction, static_cast<int>(random() % 81) - 40);
  return random() & 1 ? -magnitude : magnitude;
}

TEST(bounds, cover_chains_of_operations_on_random_operands) {
  std::mt19937 random(1);
  std::size_t checked = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    Carried x = given(any_float(random));
    for (int operation = 0; operation < 6; ++operation) {
      const Carried y = given(any_float(random));
      switch (random() % 4) {
        case 0: x = {x.run + y.run, add(x.bounded, y.bounded, fp32), x.truth + y.truth}; break;
        case 1: x = {x.run * y.run, mul(x.bounded, y.bounded, fp32), x.truth * y.truth}; break;
        case 2: x = {x.run / y.run, div(x.bounded, y.bounded, fp32), x.truth / y.truth}; break;
        default:
          if (!(x.run > 0) || !(x.bounded.value > x.bounded.error)) continue;
          x = {std::sqrt(x.run), root(x.bounded, fp32), std::sqrt(x.truth)};
      }
      if (!std::isfinite(x.run)) break;
      ASSERT_TRUE(covers(x)) << "trial " << trial << ": " << x.run << ", " << x.bounded.value << " +- " << x.bounded.error;
      ++checked;
    }
  }
  EXPECT_GT(checked, 20000u);
}

TEST(bounds, cover_results_among_the_subnormals) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 20000; ++trial) {
    const float a = std::ldexp(any_float(random), -60), b = std::ldexp(any_float(random), -60);
    const Carried product{a * b, mul({a, 0}, {b, 0}, fp32), static_cast<long double>(a) * b};
    ASSERT_TRUE(covers(product)) << a << " * " << b;
  }
}

TEST(bounds, of_a_sum_are_no_wider_than_n_roundings_of_every_partial_sum) {
  std::mt19937 random(3);
  Bounded sum;
  double partials = 0;
  const int terms = 100;
  for (int i = 0; i < terms; ++i) {
    sum = add(sum, {std::abs(any_float(random)), 0}, fp32);
    if (i > 0) partials += std::abs(sum.value);
  }
  const double first_order = fp32.u * partials;
  EXPECT_GT(sum.error, 0.0);
  EXPECT_LE(sum.error, first_order * (1 + 2 * terms * fp32.u) + terms * fp32.tiny);
}

TEST(bounds, of_exact_operations_are_exact) {
  EXPECT_TRUE(add({0, 0}, {3, 0}, fp32).exact());
  EXPECT_TRUE(add({3, 0}, {0, 0}, fp32).exact());
  EXPECT_FALSE(add({3, 0}, {4, 0}, fp32).exact()) << "a sum may round";
  EXPECT_EQ(add({0, 0}, {3, 0.5}, fp32).error, 0.5);
}

TEST(bounds, of_a_quotient_whose_divisor_may_be_zero_are_infinite) {
  EXPECT_TRUE(std::isinf(div({1, 0}, {0.5, 0.5}, fp32).error));
  EXPECT_TRUE(std::isfinite(div({1, 0}, {0.5, 0.25}, fp32).error));
}

TEST(bounds, of_a_root_cover_operands_down_to_zero) {
  const Bounded x = root({1.0, 1.0}, fp32);  // the operand lies in [0, 2]
  EXPECT_LE(std::abs(0.0 - x.value), x.error);
  EXPECT_LE(std::abs(std::sqrt(2.0) - x.value), x.error);
}

}  // namespace
}  // namespace gradledger::testing
