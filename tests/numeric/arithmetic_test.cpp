// add, mul, div and fma of sim/numeric/scalar.h against exact arithmetic with one rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/numeric/operands.h"

namespace gradledger::testing {
namespace {

constexpr std::size_t random_pairs = sanitized ? 20'000 : 1'500'000;

// One operation on (a, b) against the reference, a mismatch with its operands in the message.
template <class T, class Operation, class Reference>
void compare_pair(T a, T b, Operation&& operation, Reference&& exact, const char* name) {
  const std::uint32_t expected = exact(reference::format_of<T>, bits(a), bits(b));
  ASSERT_EQ(bits(operation(a, b)), expected) << name << std::hex << " of " << bits(a) << " and " << bits(b);
}

template <class T>
void compare_operations(T a, T b) {
  compare_pair(a, b, numeric::add<T>, reference::add, "add");
  compare_pair(a, b, numeric::mul<T>, reference::multiply, "mul");
  compare_pair(a, b, numeric::div<T>, reference::divide, "div");
}

template <class T>
void compare_all_pairs() {
  const std::vector<T> values = interesting_values<T>(96);
  std::uint64_t count = 0;
  for (T a : values)
    for (T b : values) {
      compare_operations(a, b);
      if (::testing::Test::HasFatalFailure()) return;
      ++count;
    }
  report_count(count, values.size() * values.size());
}

TEST(arithmetic, bf16_operations_round_once_over_all_pairs_of_interesting_values) { compare_all_pairs<Bf16>(); }
TEST(arithmetic, fp16_operations_round_once_over_all_pairs_of_interesting_values) { compare_all_pairs<Fp16>(); }
TEST(arithmetic, fp32_operations_round_once_over_all_pairs_of_interesting_values) { compare_all_pairs<float>(); }

template <class T>
void compare_random_pairs() {
  Random random(11);
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < random_pairs; ++i, ++count) {
    const T a = from_bits<T>(random.next());
    compare_operations(a, from_bits<T>(random.next()));
    // A partner of nearly the same exponent, where sums cancel and tie.
    const int width = reference::format_of<T>.digits + 1;
    const auto near = from_bits<T>(bits(a) ^ (random.next() & ((1u << width) - 1)) ^ (random.next() << 15));
    compare_pair(a, near, numeric::add<T>, reference::add, "add");
    if (::testing::Test::HasFatalFailure()) return;
  }
  report_count(count, random_pairs);
}

TEST(arithmetic, bf16_operations_round_once_over_random_pairs) { compare_random_pairs<Bf16>(); }
TEST(arithmetic, fp16_operations_round_once_over_random_pairs) { compare_random_pairs<Fp16>(); }

template <class T>
void compare_fused(T a, T b, T c) {
  ASSERT_EQ(bits(numeric::fma(a, b, c)), reference::fused(reference::format_of<T>, bits(a), bits(b), bits(c))) << std::hex << bits(a) << " * " << bits(b) << " + " << bits(c);
}

template <class T>
void compare_fused_triples() {
  std::vector<T> values = interesting_values<T>(4);
  if constexpr (std::is_same_v<T, float>) {  // too many for triples: every 7th
    for (std::size_t i = 0; 7 * i < values.size(); ++i) values[i] = values[7 * i];
    values.resize((values.size() + 6) / 7);
  }
  const std::size_t step = sanitized ? 5 : 1;  // under sanitizers every 5th addend
  std::uint64_t count = 0;
  std::uint64_t expected = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    for (std::size_t j = i; j < values.size(); j += 3) {
      expected += (values.size() - (i + j) % step + step - 1) / step;
      for (std::size_t k = (i + j) % step; k < values.size(); k += step, ++count) {
        compare_fused(values[i], values[j], values[k]);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  report_count(count, expected);
}

TEST(arithmetic, bf16_fma_rounds_once_over_triples_of_interesting_values) { compare_fused_triples<Bf16>(); }
TEST(arithmetic, fp16_fma_rounds_once_over_triples_of_interesting_values) { compare_fused_triples<Fp16>(); }
TEST(arithmetic, fp32_fma_rounds_once_over_triples_of_interesting_values) { compare_fused_triples<float>(); }

// An addend beside the product: its exponent differs from the product's by at most a few significands.
template <class T>
T addend_near(T a, T b, Random& random) {
  const reference::Format f = reference::format_of<T>;
  const std::uint32_t product = bits(numeric::narrow<T>(numeric::widen(a) * numeric::widen(b)));
  const int distance = static_cast<int>(random.below(5 * f.digits)) - 5 * f.digits / 2;
  const auto shifted = static_cast<std::int64_t>(product & f.nan()) + distance * static_cast<std::int64_t>(1u << (f.digits - 1));
  const auto clamped = static_cast<std::uint32_t>(std::clamp<std::int64_t>(shifted, 0, f.infinity() - 1));
  return from_bits<T>((clamped ^ random.below(1u << (f.digits - 1))) | (random.next() & f.sign_bit()));
}

// Few significand bits make exact halves likely: one odd factor each, and an addend that is a power of two or its neighbour.
template <class T>
T sparse(Random& random) {
  const reference::Format f = reference::format_of<T>;
  const std::uint32_t leading = 1u << (f.digits - 1);
  const auto exponent = static_cast<std::uint32_t>(random.below(f.infinity() / leading));
  const std::uint32_t one_digit = (leading >> random.below(static_cast<std::size_t>(f.digits))) % leading;
  return from_bits<T>(exponent * leading | one_digit | (random.next() & 1) | (random.next() & f.sign_bit()));
}

template <class T>
void compare_random_triples() {
  Random random(13);
  std::uint64_t count = 0;
  std::uint64_t rounded_twice = 0;  // where fmaf, then RN, is wrong: the cases that an exact fma is for
  for (std::size_t i = 0; i < random_pairs; ++i) {
    const T a = i % 2 ? from_bits<T>(random.next()) : sparse<T>(random);
    const T b = i % 2 ? from_bits<T>(random.next()) : sparse<T>(random);
    for (T c : {addend_near(a, b, random), sparse<T>(random)}) {
      compare_fused(a, b, c);
      if (::testing::Test::HasFatalFailure()) return;
      const T twice = numeric::narrow<T>(std::fma(numeric::widen(a), numeric::widen(b), numeric::widen(c)));
      rounded_twice += bits(twice) != bits(numeric::fma(a, b, c));
      ++count;
    }
  }
  ::testing::Test::RecordProperty("rounded_twice", std::to_string(rounded_twice));
  EXPECT_GT(rounded_twice, 0u) << "no triple needed the exact fma";
  report_count(count, 2 * random_pairs);
}

TEST(arithmetic, bf16_fma_rounds_once_where_fmaf_and_a_rounding_do_not) { compare_random_triples<Bf16>(); }
TEST(arithmetic, fp16_fma_rounds_once_where_fmaf_and_a_rounding_do_not) { compare_random_triples<Fp16>(); }

TEST(arithmetic, reference_agrees_with_the_processor_on_fp32) {
  Random random(17);
  std::uint64_t count = 0;
  const std::size_t pairs = sanitized ? 20'000 : 300'000;
  for (std::size_t i = 0; i < pairs; ++i, ++count) {
    const auto a = from_bits<float>(random.next());
    const auto b = from_bits<float>(random.next());
    const auto c = from_bits<float>(random.next());
    ASSERT_EQ(reference::add(reference::fp32, bits(a), bits(b)), bits(numeric::canonical(a + b)));
    ASSERT_EQ(reference::multiply(reference::fp32, bits(a), bits(b)), bits(numeric::canonical(a * b)));
    ASSERT_EQ(reference::divide(reference::fp32, bits(a), bits(b)), bits(numeric::canonical(a / b)));
    ASSERT_EQ(reference::fused(reference::fp32, bits(a), bits(b), bits(c)), bits(numeric::canonical(std::fma(a, b, c))));
  }
  report_count(count, pairs);
}

}  // namespace
}  // namespace gradledger::testing
