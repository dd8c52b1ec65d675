// Weights from sums in which several contributions share an element: what is told, from how few, and what stays open.
#include <cmath>
#include <deque>

#include <gtest/gtest.h>

#include "ref/row_solver.h"
#include "sim/base/hash.h"
#include "tests/support/sanitized.h"

namespace gradledger::ref {
namespace {

constexpr double due = 0.125, own = 0.25;
constexpr double fp32 = 0x1p-24, bf16 = 0x1p-8;  // unit roundoffs

// Two ranks with so many micro-batches each, in a window and in the one before.
std::vector<Term> terms(std::uint32_t micro_batches, bool with_earlier = false) {
  std::vector<Term> out;
  for (const std::uint32_t ago : {1u, 0u}) {
    if (ago == 1 && !with_earlier) continue;
    for (std::uint32_t m = 0; m < micro_batches; ++m)
      for (const bool own_rank : {true, false}) out.push_back({ago == 0 ? due : 0, own, due, ago, own_rank, m + 1 == micro_batches, m});
  }
  return out;
}

// Elements with random whole numbers from 1 to `most`, which hold these weights of them.
class Elements {
 public:
  Elements(std::vector<Term> terms, std::vector<double> weights, int most, std::uint64_t seed = 1)
      : terms_(std::move(terms)), weights_(std::move(weights)), most_(most), state_(seed) {}

  std::vector<PackedRow> rows(std::size_t n) {
    std::vector<PackedRow> out;
    for (std::size_t i = 0; i < n; ++i) {
      std::vector<float>& gradients = gradients_.emplace_back();
      PackedRow row;
      for (std::size_t k = 0; k < terms_.size(); ++k) {
        gradients.push_back(static_cast<float>(1 + (mix(++state_) >> 32) % static_cast<std::uint64_t>(most_)));
        row.held += weights_[k] * static_cast<double>(gradients.back());
        row.due += terms_[k].due * static_cast<double>(gradients.back());
      }
      row.due_magnitude = row.due;
      row.gradients = gradients.data();
      out.push_back(row);
    }
    return out;
  }

 private:
  std::vector<Term> terms_;
  std::vector<double> weights_;
  int most_;
  std::uint64_t state_;
  std::deque<std::vector<float>> gradients_;
};

RowSolver exact(const std::vector<Term>& terms, int precision = 24) { return RowSolver(terms, {}, {true, precision, 1, 16 * fp32, fp32}); }

TEST(row_solver, tells_every_weight_where_elements_are_as_many_as_contributions) {
  const std::vector<double> weights{due, due, 0, 0, due, due, own, 0};
  Elements elements(terms(4), weights, 16);
  const auto found = exact(terms(4)).solve(elements.rows(10));
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->any_open());
  EXPECT_EQ(found->value, weights);
}

TEST(row_solver, tells_the_likely_weights_of_fewer_elements) {
  const std::vector<double> weights{0, 0, due, due, due, due, own, 0};
  Elements elements(terms(4), weights, 4096);
  const auto found = exact(terms(4)).solve(elements.rows(3));
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->any_open());
  EXPECT_EQ(found->value, weights);
  // Of as many answers as there are, one in a few hundred fits two of these elements by chance.
  Elements fewer(terms(4), weights, 4096);
  const auto open = exact(terms(4)).solve(fewer.rows(2));
  EXPECT_TRUE(!open || open->any_open());
}

TEST(row_solver, leaves_open_what_one_coarse_element_does_not_tell) {
  Elements elements(terms(4), {0, due, due, 0, due, due, own, 0}, 8);
  const auto found = exact(terms(4), 8).solve(elements.rows(1));
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->any_open());
  for (std::size_t k = 0; k < 8; ++k)
    if (found->open[k]) {
      EXPECT_EQ(found->value[k], due);
    }
}

// 29 + 27, of which the first is what the window before left: twice 27 is near.
TEST(row_solver, tells_no_likely_weight_that_one_rounded_row_lies_near) {
  const std::vector<Term> two{{0, 1, 1, 1, true, true, 0}, {1, 1, 1, 0, true, true, 0}};
  const RowSolver rounded(two, {}, {false, 8, 1, 8 * bf16, 8 * bf16});
  const std::vector<float> first{29, 27}, second{21, -29}, third{-23, 29}, fourth{25, 31};
  const auto row_of = [](const std::vector<float>& g) {
    return PackedRow{g.data(), static_cast<double>(g[0] + g[1]), 0, static_cast<double>(g[1]), std::abs(static_cast<double>(g[1]))};
  };
  const auto open = rounded.solve({row_of(first)});
  EXPECT_TRUE(!open || open->any_open()) << open->value[1];
  const auto told = rounded.solve({row_of(first), row_of(second), row_of(third), row_of(fourth)});
  ASSERT_TRUE(told);
  EXPECT_EQ(told->value, (std::vector<double>{1, 1}));
}

// Two terms are in one row alone, where a half of the one and nothing of the other leave what is held: so does what nobody asked for.
TEST(row_solver, leaves_terms_open_that_too_few_of_many_rows_have) {
  const std::vector<Term> four{{0.5, 0.5, 0.5, 0, true, true, 0}, {0.5, 0.5, 0.5, 0, false, true, 0}, {0.5, 0.5, 0.5, 0, true, false, 1}, {0.5, 0.5, 0.5, 0, false, false, 1}};
  std::deque<std::vector<float>> gradients;
  std::vector<PackedRow> rows;
  for (std::uint64_t i = 0; i < 8; ++i) {
    const auto a = static_cast<float>(1 + mix(i) % 16), b = static_cast<float>(1 + mix(i + 100) % 16);
    const std::vector<float>& g = gradients.emplace_back(std::vector<float>{a, b, i == 7 ? 2.0f : 0.0f, i == 7 ? 5.0f : 0.0f});
    const double due_here = 0.5 * static_cast<double>(g[0] + g[1] + g[2] + g[3]);
    rows.push_back({g.data(), 0.5 * static_cast<double>(g[0] + g[1] + g[2]), 0, due_here, due_here});
  }
  const auto found = exact(four).solve(rows);
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->open[0] || found->open[1]);
  EXPECT_TRUE(found->open[2] && found->open[3]);
}

TEST(row_solver, takes_the_window_before_only_where_the_window_does_not_explain_it) {
  std::vector<double> weights(16, 0.0);
  for (std::size_t k = 8; k < 16; ++k) weights[k] = due;
  weights[3] = own;
  Elements elements(terms(4, true), weights, 64);
  const auto found = exact(terms(4, true)).solve(elements.rows(20));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->value, weights);
}

TEST(row_solver, names_one_factor_of_all_that_is_due) {
  Elements elements(terms(4), std::vector<double>(8, 3 * due), 64);
  const auto found = exact(terms(4)).solve(elements.rows(4));
  ASSERT_TRUE(found);
  ASSERT_TRUE(found->of_due);
  EXPECT_EQ(*found->of_due, 3);
}

// The share of what is due that explains one element explains the next one by chance where numbers are small.
TEST(row_solver, takes_no_odd_share_of_what_is_due_for_few_coarse_elements) {
  Elements elements(terms(8), {due, due, due, due, due, due, due, due, due, due, due, due, due, due, own, 0}, 4);
  for (std::size_t n = 1; n < 5; ++n) {
    const auto found = exact(terms(8), 8).solve(elements.rows(n));
    if (found) EXPECT_FALSE(found->of_due) << n;
  }
}

// Sums of positive numbers are about one share of each other, and in a coarse format that is near enough: weights that leave just what is held come first.
TEST(row_solver, tells_weights_that_leave_just_what_is_held_before_a_share_that_is_near) {
  std::vector<Term> of_four;
  for (std::uint32_t m = 0; m < 4; ++m)
    for (const bool own_rank : {true, false, false, false}) of_four.push_back({own_rank ? 0.25 : 0, 0.25, 0.25, 0, own_rank, m == 3, m});
  std::vector<double> weights(of_four.size(), 0.0);
  for (std::size_t m = 0; m < 4; ++m) weights[4 * m] = m == 2 ? 0.5 : 0.25;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Elements elements(of_four, weights, 6, seed);
    const auto found = RowSolver(of_four, {}, {true, 8, 1, 14 * bf16, bf16}).solve(elements.rows(12));
    ASSERT_TRUE(found) << seed;
    EXPECT_FALSE(found->of_due) << seed << ": " << *found->of_due;
    EXPECT_EQ(found->value, weights) << seed;
  }
}

// How far such a share lies from what is due is all that rows say of it: two of them hold a little of something else here, and by chance about as much.
TEST(row_solver, takes_no_share_next_to_what_is_due_for_two_elements_that_hold_something_else) {
  std::vector<Term> all = terms(1, true);
  for (Term& term : all) term.left = term.windows_ago == 0 ? 1 : 0x1p-18;
  std::uint32_t shares = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Elements elements(all, {0x1p-18 * due, 0x1p-18 * due, due, due}, 4096, seed);
    const auto found = RowSolver(all, {}, {false, 24, 1, 16 * fp32, fp32}).solve(elements.rows(2));
    shares += found && found->of_due && *found->of_due != 1;
  }
  EXPECT_EQ(shares, 0u);
}

TEST(row_solver, takes_what_is_due_and_was_rounded_where_nothing_had_to_be_for_no_other_weight) {
  Elements elements(terms(4), std::vector<double>(8, due), 1 << 20);
  std::vector<PackedRow> rows = elements.rows(6);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].held += i % 2 ? due : 3 * due;
  const auto found = exact(terms(4)).solve(rows);
  if (found) {
    if (found->of_due) EXPECT_EQ(*found->of_due, 1);
    else EXPECT_EQ(found->value, std::vector<double>(8, due));
  }
}

// One element in four runs, as fully_shard left it in bf16 behind a step without zero_grad(): half of this window, and half of the one before. Sums that may be
// rounded by a twentieth also fit twice the one contribution and 1.4 times the other.
TEST(row_solver, takes_no_odd_weights_of_rounded_sums_that_two_runs_alone_bear_out) {
  const std::vector<Term> of_two_ranks{{0, 1, 0.5, 1, false, true, 0}, {0, 1, 0.5, 1, true, true, 0}, {0.5, 1, 0.5, 0, false, true, 0}, {0.5, 1, 0.5, 0, true, true, 0}};
  const std::vector<std::vector<float>> gradients{{5, 8, 3, 6}, {3, 3, 3, 2}, {8, 10, 3, 8}, {5, 6, 5, 3}};
  std::vector<PackedRow> rows;
  for (const std::vector<float>& of_run : gradients) {
    const double earlier = of_run[0] + of_run[1], due_here = of_run[2] + of_run[3];
    rows.push_back({of_run.data(), (earlier + due_here) / 2, 0, due_here / 2, due_here / 2});
  }
  const RowSolver solver(of_two_ranks, {}, {true, 8, 1, 14 * bf16, bf16});
  const auto found = solver.solve(rows);
  const std::vector<double> true_ones(4, 0.5);
  EXPECT_TRUE(!found || found->any_open() || found->value == true_ones) << found->value[2] << " and " << found->value[3];
  EXPECT_TRUE(solver.explains({true_ones, std::vector<bool>(4, false), {}, {}}, rows.front()));
}

TEST(row_solver, has_no_weights_where_elements_do_not_have_them_in_common) {
  Elements elements(terms(2), {due, due, 0, 0}, 64);
  std::vector<PackedRow> rows = elements.rows(12);
  Elements others(terms(2), {due, due, due, due}, 64, 2);
  for (const PackedRow& row : others.rows(6)) rows.push_back(row);
  EXPECT_FALSE(exact(terms(2)).solve(rows));
}

TEST(row_solver, finds_no_weights_in_numbers_that_are_none_of_the_gradients) {
  Elements elements(terms(4), std::vector<double>(8, due), 64);
  std::vector<PackedRow> rows = elements.rows(12);
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) std::swap(rows[i].held, rows[i + 1].held);
  EXPECT_FALSE(exact(terms(4)).solve(rows));
}

// In a format of 8 bits the sums of four times the weights are rounded; those of smaller numbers are not.
// What 8 bits hold of a sum.
double in_bf16(double sum) {
  const int exponent = std::ilogb(sum) - 7;
  return sum == 0 ? 0 : std::ldexp(std::nearbyint(std::ldexp(sum, -exponent)), exponent);
}

RowSolver rounded(const std::vector<Term>& terms) { return RowSolver(terms, {}, {false, 8, 1, 14 * bf16, bf16}); }

// What a contribution is due, and what it weighs before and after an average.
struct Likely {
  double due, own, averaged;
};

// Any likely weights, or what an average leaves everywhere; of the window before nothing, some or all.
std::vector<double> drawn_weights(const std::vector<Term>& all, const Likely& likely, std::uint64_t seed) {
  std::vector<double> out;
  for (std::size_t k = 0; k < all.size(); ++k) {
    const std::uint64_t drawn = mix(hash_keys({seed, k})) % 8;
    const bool earlier = all[k].windows_ago > 0;
    const double any = earlier ? (drawn < 4 ? 0 : drawn < 6 ? likely.averaged : likely.own) : (drawn < 4 ? likely.due : drawn < 6 ? 0 : drawn < 7 ? likely.own : 2 * likely.due);
    if (earlier && seed % 3 == 0) out.push_back(0);
    else out.push_back(seed % 2 == 0 ? any : likely.averaged);
  }
  return out;
}

// Whatever it leaves open.
TEST(row_solver, tells_no_weight_of_rounded_rows_that_is_not_there) {
  std::size_t told = 0;
  for (const Likely& likely : {Likely{due, own, due}, Likely{1.0 / 24, 1, 0.25}, Likely{0.1, 1, 0.5}})
    for (std::uint64_t seed = 0; seed < (testing::sanitized ? 6u : 24u); ++seed)
      for (const std::size_t n : {1u, 2u, 4u, 8u, 12u, 20u, 40u, 96u}) {
        std::vector<Term> all = terms(1 + mix(seed) % 10, true);
        for (Term& term : all) {
          term.due = term.windows_ago > 0 ? 0 : likely.due;
          term.own = likely.own;
          term.averaged = likely.averaged;
        }
        const std::vector<double> weights = drawn_weights(all, likely, seed);
        Elements elements(all, weights, 128, seed);
        std::vector<PackedRow> rows = elements.rows(n);
        for (PackedRow& row : rows) row.held = in_bf16(row.held);
        const auto found = rounded(all).solve(rows);
        if (!found || found->of_due) continue;
        for (std::size_t k = 0; k < all.size(); ++k) {
          if (found->open[k] || (!found->dark.empty() && found->dark[k])) continue;
          ++told;
          EXPECT_EQ(found->value[k], weights[k]) << "seed " << seed << ", " << n << " rows, term " << k << " of " << all.size() << ", due " << likely.due;
        }
      }
  EXPECT_GT(told, 0u);
}

// The format is coarse, and these sums fit it none the less.
TEST(row_solver, tells_weights_of_rows_that_could_have_been_rounded_and_were_not) {
  std::vector<double> weights(16, 0.0);
  for (std::size_t k = 0; k < 16; ++k) weights[k] = k < 8 ? due : own;
  Elements elements(terms(4, true), weights, 8);
  std::vector<PackedRow> rows = elements.rows(40);
  const auto found = rounded(terms(4, true)).solve(rows);
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->any_open());
  EXPECT_EQ(found->value, weights);
  for (PackedRow& row : rows) row.held += due;  // within rounding, and no sum of these weights
  const auto off = rounded(terms(4, true)).solve(rows);
  EXPECT_TRUE(!off || off->any_open() || off->of_due);
}

TEST(row_solver, goes_by_the_sums_that_were_not_rounded) {
  const std::vector<double> weights(8, 2.5 * due);
  Elements large(terms(4), weights, 16), small(terms(4), weights, 4, 2);
  std::vector<PackedRow> rows = large.rows(6);
  for (PackedRow& row : rows) row.held = std::ldexp(std::round(std::ldexp(row.held, 8 - 1 - std::ilogb(row.held))), std::ilogb(row.held) + 1 - 8);
  for (const PackedRow& row : small.rows(12)) rows.push_back(row);
  RowSolver solver(terms(4), {}, {true, 8, 1, 12 * bf16, bf16});
  const auto found = solver.solve(rows);
  ASSERT_TRUE(found);
  if (found->of_due) EXPECT_EQ(*found->of_due, 2.5);
  else EXPECT_EQ(found->value, weights);
}

TEST(row_solver, takes_what_lies_within_rounding_for_what_is_due) {
  Elements elements(terms(1), {due, 0}, 31);
  std::vector<PackedRow> rows = elements.rows(6);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].held *= i % 2 ? 1 + fp32 : 1 - fp32;
  const auto found = RowSolver(terms(1), {}, {false, 24, 1, 16 * fp32, fp32}).solve(rows);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->value, (std::vector<double>{due, 0}));
}

TEST(row_solver, says_which_contributions_no_element_has) {
  Elements elements(terms(1), {0, due}, 31);
  std::vector<PackedRow> rows = elements.rows(6);
  std::deque<std::vector<float>> dark;
  for (PackedRow& row : rows) {
    row.held -= due * static_cast<double>(row.gradients[1]);
    dark.push_back({row.gradients[0], 0.0f});
    row.gradients = dark.back().data();
  }
  const auto found = exact(terms(1)).solve(rows);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->dark, (std::vector<bool>{false, true}));
}

}  // namespace
}  // namespace gradledger::ref
