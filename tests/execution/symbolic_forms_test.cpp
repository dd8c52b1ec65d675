// Linear forms over contributions: sums, weights, ranks, and what does not fit.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "sim/base/rational.h"
#include "sim/execution/symbolic/forms.h"
#include "sim/execution/symbolic/stretches.h"

namespace gradledger {

// For lists of terms to be compared.
inline bool operator==(const WeightTerm& a, const WeightTerm& b) {
  return a.backward_begin == b.backward_begin && a.backward_end == b.backward_end && a.rank_begin == b.rank_begin && a.rank_end == b.rank_end && a.shift == b.shift &&
         a.weight == b.weight;
}

namespace {

std::vector<WeightTerm> terms(LinearForms& forms, FormId form) {
  const auto listed = forms.terms(form);
  return {listed.begin(), listed.end()};
}

TEST(linear_forms, have_one_number_for_one_sum_however_it_came_about) {
  LinearForms forms;
  const FormId a = forms.contribution(0), b = forms.contribution(1), c = forms.contribution(2);
  EXPECT_EQ(forms.sum(forms.sum(a, b), c), forms.sum(a, forms.sum(c, b)));
  EXPECT_EQ(forms.sum(a, forms.scaled(a, -1)), LinearForms::zero);
  EXPECT_EQ(forms.scaled(forms.scaled(a, Rational(1, 3)), 3), a);
  EXPECT_NE(forms.scaled(a, Rational(1, 3)), a);
}

TEST(linear_forms, hold_a_window_of_equal_weights_in_one_term) {
  LinearForms forms;
  FormId sum = LinearForms::zero;
  for (std::uint32_t backward = 0; backward < 1000; ++backward) sum = forms.sum(sum, forms.contribution(backward));
  const FormId mean = forms.scaled(forms.over_ranks(sum, {0, 1, 2, 3}), Rational(1, 4000));
  EXPECT_EQ(terms(forms, mean), (std::vector<WeightTerm>{{0, 1000, 0, 4, 0, Rational(1, 4000)}}));
}

TEST(linear_forms, tell_what_is_of_the_rank_that_holds_them_from_what_is_of_others) {
  LinearForms forms;
  const FormId own = forms.contribution(0);
  const FormId both = forms.sum(own, forms.over_ranks(own, {0, 1}));
  EXPECT_EQ(terms(forms, forms.on_rank(both, 1)), (std::vector<WeightTerm>{{0, 1, 0, 1, 0, 1}, {0, 1, 1, 2, 0, 2}}));
  EXPECT_EQ(terms(forms, forms.on_rank(both, 2)), (std::vector<WeightTerm>{{0, 1, 0, 3, 0, 1}}));
  // What two ranks hold of others is there twice in their sum.
  EXPECT_EQ(terms(forms, forms.over_ranks(both, {0, 1})), (std::vector<WeightTerm>{{0, 1, 0, 2, 0, 3}}));
}

TEST(linear_forms, keep_elements_apart_that_lie_elsewhere) {
  LinearForms forms;
  const FormId here = forms.on_rank(forms.contribution(0), 0);
  const FormId both = forms.sum(here, forms.shifted(here, -5));
  EXPECT_EQ(terms(forms, both), (std::vector<WeightTerm>{{0, 1, 0, 1, -5, 1}, {0, 1, 0, 1, 0, 1}}));
  EXPECT_EQ(forms.first_shift(both), -5);
}

TEST(linear_forms, are_untold_where_a_fraction_does_not_fit_and_poison_stays_poison) {
  LinearForms forms;
  FormId small = forms.contribution(0);
  for (int i = 0; i < 3; ++i) small = forms.scaled(small, Rational(1, (std::int64_t{1} << 31) - 1));
  EXPECT_EQ(small, LinearForms::untold);
  EXPECT_EQ(forms.sum(small, LinearForms::poison), LinearForms::poison);
  EXPECT_EQ(forms.sum(small, forms.contribution(1)), LinearForms::untold);
  EXPECT_EQ(forms.over_ranks(LinearForms::poison, {0, 1}), LinearForms::poison);
  EXPECT_FALSE(forms.has_terms(small));
}

TEST(checked_sum, is_exact_or_nothing) {
  EXPECT_EQ(checked_sum(Rational(1, 6), Rational(1, 3)), Rational(1, 2));
  EXPECT_EQ(checked_sum(Rational(1, 6), Rational(-1, 6)), Rational(0));
  const std::int64_t large = std::int64_t{1} << 61;
  EXPECT_EQ(checked_sum(Rational(large), Rational(large)), Rational(2 * large));
  EXPECT_EQ(checked_sum(Rational(2 * large), Rational(1)), std::nullopt);
  EXPECT_EQ(checked_sum(Rational(1, large), Rational(1, large - 1)), std::nullopt);
}

Stretches read(const PiecewiseBuffer& buffer, std::uint64_t offset, std::uint64_t numel) {
  Stretches out;
  buffer.read(offset, numel, out);
  return out;
}

TEST(piecewise_buffer, holds_what_was_written_where_it_was_written) {
  PiecewiseBuffer buffer(10);
  EXPECT_EQ(read(buffer, 0, 10), (Stretches{{0, 10, LinearForms::poison}}));
  buffer.write(3, {{0, 4, 7, 0, 100}});
  EXPECT_EQ(read(buffer, 0, 10), (Stretches{{0, 3, LinearForms::poison}, {3, 7, 7, 0, 97}, {7, 10, LinearForms::poison}}));
  EXPECT_EQ(read(buffer, 5, 3), (Stretches{{0, 2, 7, 0, 102}, {2, 3, LinearForms::poison}}));
  // A neighbour that goes on in the same elements joins.
  buffer.write(7, {{0, 3, 7, 0, 104}});
  EXPECT_EQ(buffer.pieces(), 2u);
  buffer.write(0, {{0, 10, LinearForms::zero}});
  EXPECT_EQ(buffer.pieces(), 1u);
}

TEST(piecewise_buffer, takes_few_pieces_beyond_32_bits_of_elements) {
  constexpr std::uint64_t numel = std::uint64_t{1} << 40;
  PiecewiseBuffer buffer(numel);
  buffer.write(std::uint64_t{1} << 32, {{0, std::uint64_t{1} << 33, 5, 0, 0}});
  EXPECT_EQ(read(buffer, (std::uint64_t{1} << 32) - 1, 2), (Stretches{{0, 1, LinearForms::poison}, {1, 2, 5, 0, -1}}));
  EXPECT_EQ(read(buffer, (std::uint64_t{3} << 32) - 1, 2), (Stretches{{0, 1, 5, 0, (std::int64_t{1} << 33) - 1}, {1, 2, LinearForms::poison}}));
  EXPECT_EQ(buffer.pieces(), 3u);
}

}  // namespace
}  // namespace gradledger
