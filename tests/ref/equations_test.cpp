// Systems of equations: bounds that hold, what is told to be free, and what has no solution.
#include "ref/equations.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "sim/base/hash.h"

namespace gradledger::ref {
namespace {

// Whole numbers from 1 to `most`.
Coefficients drawn(std::size_t equations, std::size_t unknowns, std::uint64_t most, std::uint64_t seed) {
  Coefficients out(equations, std::vector<double>(unknowns));
  for (std::size_t i = 0; i < equations; ++i)
    for (std::size_t k = 0; k < unknowns; ++k) out[i][k] = static_cast<double>(1 + mix(hash_keys({seed, i, k})) % most);
  return out;
}

// Eighths, so that sums are exact.
std::vector<double> weights(std::size_t unknowns) {
  std::vector<double> out;
  for (std::size_t k = 0; k < unknowns; ++k) out.push_back(static_cast<double>(k % 5) / 8);
  return out;
}

std::vector<double> sums(const Coefficients& a, const std::vector<double>& x) {
  std::vector<double> out;
  for (const std::vector<double>& row : a) {
    double& sum = out.emplace_back(0.0);
    for (std::size_t k = 0; k < x.size(); ++k) sum += row[k] * x[k];
  }
  return out;
}

TEST(left_inverse, bounds_how_far_off_each_unknown_is) {
  for (const std::size_t unknowns : {1u, 3u, 16u, 64u})
    for (const double off : {0.0, 0.5, 4.0}) {
      const Coefficients a = drawn(3 * unknowns + 4, unknowns, 1000, unknowns);
      const std::vector<double> x = weights(unknowns);
      std::vector<double> b = sums(a, x);
      for (std::size_t i = 0; i < b.size(); ++i) b[i] += i % 2 ? off : -off;
      const auto inverse = LeftInverse::of(a);
      ASSERT_TRUE(inverse);
      const LeftInverse::Solution found = inverse->solve(b, std::vector<double>(b.size(), off));
      for (std::size_t k = 0; k < unknowns; ++k) {
        EXPECT_LE(std::abs(found.value[k] - x[k]), found.error[k]);
        if (off == 0) EXPECT_LT(found.error[k], 0x1p-32) << "of no use if it is wide";
        else EXPECT_GT(found.error[k], 0x1p-32);
      }
    }
}

// fp64 finds numbers there, and hardly one digit of them is right.
TEST(left_inverse, is_none_or_has_a_wide_bound_where_unknowns_nearly_depend_on_each_other) {
  for (const int digits : {20, 26, 40, 50}) {
    const Coefficients a{{1, 1}, {1, 1 + std::ldexp(1.0, -digits)}, {2, 2}};
    const std::vector<double> x{3, -1}, b = sums(a, x);
    const auto inverse = LeftInverse::of(a);
    if (!inverse) continue;
    const LeftInverse::Solution found = inverse->solve(b, {0, 0, 0});
    for (std::size_t k = 0; k < 2; ++k) EXPECT_LE(std::abs(found.value[k] - x[k]), found.error[k]) << digits;
    EXPECT_GT(found.error[0], std::ldexp(1.0, digits - 60)) << digits;
  }
}

TEST(left_inverse, is_none_where_unknowns_depend_on_each_other) {
  EXPECT_FALSE(LeftInverse::of({{1, 2}, {2, 4}, {3, 6}}));
  EXPECT_FALSE(LeftInverse::of({{1, 2}}));
  EXPECT_FALSE(LeftInverse::of({{1, 0}, {2, 0}}));
  EXPECT_FALSE(LeftInverse::of({}));
}

// As many times as equations are off by no more than they may be.
TEST(left_inverse, can_hold_what_some_unknowns_make_within_what_equations_are_off) {
  for (const std::size_t unknowns : {1u, 3u, 16u})
    for (const std::size_t more : {0u, 1u, 5u, 40u})
      for (const double off : {0.0, 0.5, 4.0}) {
        const Coefficients a = drawn(unknowns + more, unknowns, 255, unknowns + more);
        const auto inverse = LeftInverse::of(a);
        ASSERT_TRUE(inverse);
        std::vector<double> right = sums(a, weights(unknowns));
        for (std::size_t i = 0; i < right.size(); ++i) right[i] += mix(i + unknowns) % 2 == 0 ? off : -off;
        EXPECT_TRUE(inverse->can_hold(right, std::vector<double>(right.size(), off))) << unknowns << " " << more << " " << off;
      }
}

// A term that is in every equation and none of the unknowns'.
TEST(left_inverse, cannot_hold_what_has_something_else_in_it_where_there_are_equations_to_spare) {
  for (const std::size_t unknowns : {1u, 3u, 16u}) {
    const Coefficients whole = drawn(3 * unknowns + 4, unknowns + 1, 255, unknowns);
    Coefficients a = whole;
    for (std::vector<double>& row : a) row.pop_back();
    std::vector<double> all = weights(unknowns);
    all.push_back(0.5);
    const std::vector<double> right = sums(whole, all);
    const auto inverse = LeftInverse::of(a);
    ASSERT_TRUE(inverse);
    EXPECT_FALSE(inverse->can_hold(right, std::vector<double>(right.size(), 1.0))) << unknowns;
    EXPECT_TRUE(inverse->can_hold(right, std::vector<double>(right.size(), 128.0))) << "it is no larger than what each may be off";
    Coefficients square(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(unknowns));
    const auto of_square = LeftInverse::of(square);
    ASSERT_TRUE(of_square);
    EXPECT_TRUE(of_square->can_hold({right.begin(), right.begin() + static_cast<std::ptrdiff_t>(unknowns)}, std::vector<double>(unknowns, 0.0))) << "none to spare";
  }
}

TEST(elimination, leaves_free_what_equations_do_not_tell_and_tells_the_rest_by_it) {
  const Coefficients a = drawn(5, 8, 255, 1);
  const std::vector<double> x = weights(8);
  const auto found = eliminate(a, sums(a, x));
  ASSERT_TRUE(found);
  ASSERT_EQ(found->free.size(), 3u);
  ASSERT_EQ(found->told.size(), 5u);
  for (const Elimination::Told& told : found->told) {
    double value = told.base;
    for (std::size_t f = 0; f < 3; ++f) value += told.follows[f] * x[found->free[f]];
    EXPECT_EQ(std::round(64 * value) / 64, x[told.unknown]);
    EXPECT_EQ(std::count(found->free.begin(), found->free.end(), told.unknown), 0);
  }
}

TEST(elimination, tells_a_dependence_that_fp64_cannot_see_from_none) {
  // The last equation is the sum of the others but for a part in 2^52.
  const Coefficients a{{1, 1, 0}, {0, 1, 1}, {1, 2, 1 + 0x1p-52}};
  EXPECT_TRUE(eliminate(a, {1, 1, 2})->free.empty());
  const auto dependent = eliminate({{1, 1, 0}, {0, 1, 1}, {1, 2, 1}}, {1, 1, 2});
  ASSERT_TRUE(dependent);
  EXPECT_EQ(dependent->free.size(), 1u);
}

TEST(elimination, has_no_values_for_equations_that_contradict_each_other) {
  EXPECT_FALSE(eliminate({{1, 2}, {2, 4}}, {1, 3}));
  EXPECT_FALSE(eliminate({{0, 0}}, {1}));
  EXPECT_TRUE(eliminate({{1, 2}, {2, 4}}, {1, 2}));
}

TEST(elimination, without_any_term_leaves_everything_free) {
  const auto found = eliminate({{0, 0, 0}}, {0});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->free.size(), 3u);
  EXPECT_TRUE(found->told.empty());
}

}  // namespace
}  // namespace gradledger::ref
