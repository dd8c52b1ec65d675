// The reference's arithmetic on whole vectors, held to its rules written out for one element.
#include "ref/elementwise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "ref/dtype_facts.h"
#include "sim/base/hash.h"
#include "tests/support/instruction_sets.h"

namespace gradledger::ref {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr std::uint64_t more_than_bf16 = (std::uint64_t{1} << 45) - 1;

Rounding rounding_of(Dtype dtype) { return {facts_of(dtype).unit_roundoff(), facts_of(dtype).tiny()}; }

// Of a few bits and of many, of all sizes, with zeros and what is no finite number among them.
std::vector<double> some(std::uint64_t seed, std::size_t n, bool finite) {
  const std::vector<double> odd{0, 0, -0.0, 1, -1.5, 0x1p-1040, -0x1.8p-1060, 0x1.234567p40, infinity, -infinity, not_a_number};
  std::vector<double> out;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t word = hash_keys({seed, i});
    const double drawn = static_cast<double>(static_cast<std::int64_t>(word >> 20) - (std::int64_t{1} << 43)) * 0x1p-40;
    out.push_back(word % 3 == 0 ? odd[(word >> 8) % (odd.size() - (finite ? 3 : 0))] : word % 3 == 1 ? std::round(drawn * 8) / 8 : drawn);
  }
  return out;
}

std::vector<double> sizes_of(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

bool same(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) || (std::isnan(a) && std::isnan(b)); }

void expect_same(const std::vector<double>& found, const std::vector<double>& due, const char* what) {
  ASSERT_EQ(found.size(), due.size());
  for (std::size_t i = 0; i < due.size(); ++i) ASSERT_TRUE(same(found[i], due[i])) << what << ", element " << i << " of " << due.size() << ": " << found[i] << ", not " << due[i];
}

// ---- one element ------------------------------------------------------------------------------------------------------------------------

bool held_in_bf16(double x) {
  if (std::isnan(x)) return false;
  if (!std::isfinite(x) || x == 0) return true;
  int exponent;
  const double digits = std::ldexp(std::frexp(x, &exponent), 8);
  return digits == std::trunc(digits);
}

void add_one(double& value, double* error, double term, double of_term, const Terms& t) {
  value += term;
  if (!error) return;
  const bool first = *error == 0 && value == term && t.accumulate.u <= t.deposit.u;
  *error = widened(*error + of_term + (first ? 0 : t.accumulate.of(std::abs(value) + *error + of_term)));
}

double rounded_in_reduction(const Reduction& r, double terms_magnitude, double result_magnitude, double terms) {
  double error = r.average_roundings * r.wire.of(terms_magnitude);
  if (r.wire.u > std::min(r.accumulate.u, r.deposit.u)) error += r.wire.of(terms_magnitude);
  if (terms > 1) error += (terms - 1) * r.wire.of(terms_magnitude * (1 + terms * r.wire.u));
  if (r.deposit.u > r.wire.u) error += r.sums_of_share * r.deposit.of(terms_magnitude * (1 + r.sums_of_share * r.deposit.u));
  if (r.accumulate.u > r.wire.u) error += r.accumulate.of(result_magnitude);
  return error * (1 + (r.average_roundings + 2) * r.wire.u) + (r.average_roundings + terms + 2) * std::max(r.wire.tiny, r.deposit.tiny);
}

// ---- on every instruction set that the machine has ----------------------------------------------------------------------------------------

class elementwise : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { use_instruction_set(GetParam()); }
  void TearDown() override { use_best_instruction_set(); }
};

INSTANTIATE_TEST_SUITE_P(targets, elementwise, ::testing::ValuesIn(instruction_sets()),
                         [](const ::testing::TestParamInfo<std::int64_t>& at) { return name_of_instruction_set(at.param); });

struct Case {
  std::size_t n;
  double weight, weight_error, divisor;
  Dtype computed, accumulation;
  bool errors, own_error, counts, since;
};

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const std::size_t n : {0, 1, 3, 8, 17})
    for (const int bits : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
      out.push_back({n, bits & 1 ? 1.0 / 3 : 0.25, bits & 2 ? 0x1p-24 : 0, bits & 4 ? 6.0 : 8.0, Dtype::bfloat16, bits & 8 ? Dtype::float32 : Dtype::bfloat16, (bits & 3) != 3,
                     (bits & 6) == 6, (bits & 9) != 9, (bits & 5) == 5});
  return out;
}

TEST_P(elementwise, terms_go_into_sums_by_the_rules_of_one_element) {
  for (const Case& c : cases()) {
    const std::vector<double> gradient = some(1, c.n, false), off = sizes_of(some(2, c.n, true));
    std::vector<double> local = some(3, c.n, true), local_error = sizes_of(some(4, c.n, true)), since = some(5, c.n, true), since_error = sizes_of(some(6, c.n, true));
    std::vector<double> average = some(7, c.n, true), magnitude(c.n, 0.5), error(c.n, 0.25), terms(c.n, 1.0);
    const Terms t{gradient.data(), c.own_error ? off.data() : nullptr, c.weight, c.weight_error, c.divisor, rounding_of(c.computed), rounding_of(c.accumulation), more_than_bf16};
    auto local_due = local, local_error_due = local_error, since_due = since, since_error_due = since_error, average_due = average, magnitude_due = magnitude, error_due = error,
         terms_due = terms;
    for (std::size_t i = 0; i < c.n; ++i) {
      const double term = gradient[i] * c.weight, before = c.own_error ? off[i] * c.weight : 0;
      if (c.counts) average_due[i] += term / c.divisor;
      if (term == 0 && before == 0) continue;
      const bool exact = before == 0 && c.weight_error == 0 && held_in_bf16(gradient[i]);
      const double of_term = !c.errors ? 0 : before + (exact ? 0 : (t.deposit.u + c.weight_error) * (std::abs(term) + before) * (1 + t.deposit.u)) + t.deposit.tiny;
      add_one(local_due[i], c.errors ? &local_error_due[i] : nullptr, term, of_term, t);
      if (c.since) add_one(since_due[i], c.errors ? &since_error_due[i] : nullptr, term, of_term, t);
      if (!c.errors || !c.counts) continue;
      magnitude_due[i] += (std::abs(term) + before) / c.divisor;
      error_due[i] += of_term / c.divisor;
      terms_due[i] += 1;
    }
    const auto sums = [&](std::vector<double>& value, std::vector<double>& of_value) { return Sums{value.data(), c.errors ? of_value.data() : nullptr}; };
    add_terms(t, sums(local, local_error), c.since ? sums(since, since_error) : Sums{}, c.counts ? average.data() : nullptr,
              c.errors && c.counts ? Fresh{magnitude.data(), error.data(), terms.data()} : Fresh{}, c.n);
    expect_same(local, local_due, "own sum");
    expect_same(local_error, local_error_due, "its error");
    expect_same(since, since_due, "sum since");
    expect_same(since_error, since_error_due, "its error");
    expect_same(average, average_due, "average");
    expect_same(magnitude, magnitude_due, "magnitude");
    expect_same(error, error_due, "error");
    expect_same(terms, terms_due, "terms");
  }
}

TEST_P(elementwise, sums_are_added_but_for_what_is_nothing) {
  for (const std::size_t n : {0, 1, 3, 8, 17}) {
    const std::vector<double> value = some(11, n, true), of_value = sizes_of(some(12, n, true));
    std::vector<double> sum = some(13, n, true), error = sizes_of(some(14, n, true));
    auto sum_due = sum, error_due = error;
    Terms t;
    t.deposit = t.accumulate = rounding_of(Dtype::bfloat16);
    for (std::size_t i = 0; i < n; ++i)
      if (value[i] != 0 || of_value[i] != 0) add_one(sum_due[i], &error_due[i], value[i], of_value[i], t);
    add_sums({value.data(), of_value.data()}, t.accumulate, true, {sum.data(), error.data()}, n);
    expect_same(sum, sum_due, "sum");
    expect_same(error, error_due, "error");
  }
}

std::vector<Reduction> reductions() {
  std::vector<Reduction> out;
  for (const Dtype wire : {Dtype::bfloat16, Dtype::float32})
    for (const Dtype accumulation : {Dtype::bfloat16, Dtype::float32})
      for (const double share : {0.0, 3.0})
        for (const double ranks : {4.0, 6.0})
          out.push_back({rounding_of(wire), rounding_of(accumulation), rounding_of(Dtype::bfloat16), ranks == 6 ? 3.0 : 0.0, share, ranks, ranks});
  return out;
}

TEST_P(elementwise, a_backward_that_is_reduced_widens_what_it_brought_something_to) {
  for (const Reduction& r : reductions())
    for (const std::size_t n : {0, 1, 3, 8, 17}) {
      const std::vector<double> average = some(21, n, false), fresh_error = sizes_of(some(22, n, true)), magnitude = sizes_of(some(23, n, false));
      std::vector<double> terms, error = sizes_of(some(24, n, true));
      for (std::size_t i = 0; i < n; ++i) terms.push_back(static_cast<double>(i % 4));
      auto due = error, brought = fresh_error, of_magnitude = magnitude;
      for (std::size_t i = 0; i < n; ++i) {
        if (terms[i] == 0) continue;
        const bool first = due[i] == 0;
        due[i] += fresh_error[i] + rounded_in_reduction(r, magnitude[i], magnitude[i], terms[i]);
        if (!first) due[i] += r.accumulate.of(std::abs(average[i]) + due[i]);
        due[i] = widened(due[i]);
      }
      reduce_backward(r, {of_magnitude.data(), brought.data(), terms.data()}, average.data(), error.data(), n);
      expect_same(error, due, "error");
    }
}

TEST_P(elementwise, what_waits_is_reduced_onto_what_the_last_reduction_left) {
  for (const Reduction& r : reductions())
    for (const std::size_t n : {0, 1, 3, 8, 17}) {
      const std::vector<double> average = some(31, n, false), left_magnitude = sizes_of(some(32, n, true)), least = sizes_of(some(33, n, true));
      std::vector<std::vector<double>> value, error;
      std::vector<Summed> ranks;
      for (std::uint64_t rank = 0; rank < 7; ++rank) {
        value.push_back(some(40 + rank, n, true));
        error.push_back(sizes_of(some(50 + rank, n, true)));
      }
      for (std::size_t rank = 0; rank < value.size(); ++rank) ranks.push_back({value[rank].data(), error[rank].data()});
      std::vector<double> found = sizes_of(some(34, n, true)), due;
      for (std::size_t i = 0; i < n; ++i) {
        double magnitude = left_magnitude[i], off = found[i], terms = magnitude > 0 ? r.ranks : 0;
        for (std::size_t rank = 0; rank < value.size(); ++rank) {
          if (value[rank][i] == 0 && error[rank][i] == 0) continue;
          magnitude += (std::abs(value[rank][i]) + error[rank][i]) / r.divisor;
          off += error[rank][i] / r.divisor;
          terms = std::min(terms + 1, r.ranks);
        }
        if (terms > 0) off = widened(off + r.accumulate.of(magnitude) + rounded_in_reduction(r, magnitude, std::abs(average[i]) + off, terms));
        due.push_back(std::max(least[i], off));
      }
      reduce_waiting(r, {ranks, left_magnitude.data(), found.data(), average.data()}, least.data(), found.data(), n);
      expect_same(found, due, "error");
    }
}

TEST_P(elementwise, elements_are_counted_up_to_the_first_that_is_not_within_its_bound) {
  for (const std::size_t n : {0, 1, 3, 8, 17, 40}) {
    const std::vector<double> due = some(61, n, true), error = sizes_of(some(62, n, true)), off = sizes_of(some(63, n, true));
    Held held{nullptr, off.data(), due.data(), error.data(), 0.75, 0x1p-20, 4, 0x1p-126};
    for (std::size_t wrong = 0; wrong <= n; ++wrong)
      for (const int how : {0, 1, 2}) {
        std::vector<double> stored;
        double tightest = 0.125, tightest_due = tightest;
        for (std::size_t i = 0; i < n; ++i) {
          const double bound = off[i] + (4 * (error[i] * 0.75 + (std::abs(due[i]) + error[i]) * 0x1p-20) + 0x1p-126), expected = due[i] * 0.75 * 4;
          ASSERT_TRUE(same(held.bound(i), bound) && same(held.expected(i), expected));
          stored.push_back(expected + (i % 2 ? -bound : bound) / 2);
          if (i < wrong) tightest_due = std::max(tightest_due, std::abs(stored[i] - expected) / bound);
          if (i == wrong) stored[i] = how == 0 ? expected + 3 * bound + std::abs(expected) : how == 1 ? infinity : not_a_number;
        }
        held.stored = stored.data();
        EXPECT_EQ(count_within(held, n, tightest), wrong) << "of " << n;
        EXPECT_EQ(tightest, tightest_due);
      }
  }
}

TEST_P(elementwise, nothing_is_within_an_infinite_bound_or_of_an_infinite_reference) {
  const std::vector<double> stored{1, 1}, due{1, infinity}, error{infinity, 0};
  double tightest = 0;
  Held held;
  held.stored = stored.data();
  held.due = due.data();
  held.due_error = error.data();
  EXPECT_EQ(count_within(held, 2, tightest), 0u);
  EXPECT_EQ(count_within(held.from(1), 1, tightest), 0u);
  EXPECT_EQ(tightest, 0.0);
}

}  // namespace
}  // namespace gradledger::ref
