// Fractions that fp64 numbers stand for.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "sim/base/rational.h"

namespace gradledger {
namespace {

constexpr std::int64_t exact_max = std::int64_t{1} << 53;

// As near as fp64 can tell, and exactly the number: a quarter of an ulp to either side is rounded back to it.
void expect_one_answer(double x) {
  const double quarter = std::abs(x) * std::numeric_limits<double>::epsilon() / 4;
  EXPECT_EQ(simplest_within(x, 0, exact_max), simplest_within(x, quarter, exact_max)) << x;
}

TEST(a_simplest_quotient_without_an_error, is_what_whole_numbers_were_divided_to_it) {
  for (std::int64_t q = 1; q <= 400; ++q)
    for (std::int64_t p = 1; p <= 400; ++p) {
      const double x = static_cast<double>(p) / static_cast<double>(q);
      ASSERT_EQ(simplest_within(x, 0, exact_max), Rational(p, q)) << p << "/" << q;
      expect_one_answer(x);
      expect_one_answer(-x);
    }
}

TEST(a_simplest_quotient_without_an_error, is_that_of_large_numbers_too_as_long_as_fp64_tells_them_apart) {
  constexpr std::array<std::int64_t, 6> large{65521, 999983, 16777213, 33554393, 67108859, (1 << 26) + 1};
  for (const std::int64_t q : large)
    for (const std::int64_t p : large) {
      const double x = static_cast<double>(p) / static_cast<double>(q);
      EXPECT_EQ(simplest_within(x, 0, exact_max), Rational(p, q)) << p << "/" << q;
      expect_one_answer(x);
    }
}

TEST(a_simplest_quotient_without_an_error, has_the_same_answer_as_one_of_a_quarter_of_an_ulp_everywhere) {
  for (int exponent = -1074; exponent < 1024; ++exponent)
    for (const double fraction : {1.0, 1.0 + std::numeric_limits<double>::epsilon(), 1.25, 4.0 / 3.0, 1.6180339887498949, 2.0 - std::numeric_limits<double>::epsilon()})
      expect_one_answer(std::ldexp(fraction, exponent));
  expect_one_answer(0);
  for (const double none : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) EXPECT_EQ(simplest_within(none, 0, exact_max), std::nullopt);
  EXPECT_EQ(simplest_within(0x1p-60, 0, exact_max), std::nullopt) << "beyond what it may be";
}

}  // namespace
}  // namespace gradledger
