// Conversions of bf16 and fp16, against exact values: all 65536 of each widened, all 2^32 fp32 values narrowed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iostream>
#include <vector>

#include "sim/numeric/kernels.h"
#include "tests/numeric/operands.h"
#include "tests/support/instruction_sets.h"

namespace gradledger::testing {
namespace {

using numeric::narrow;
using numeric::widen;

template <class T>
double exact_value(std::uint32_t magnitude) {
  const reference::Format f = reference::format_of<T>;
  const std::uint32_t leading = 1u << (f.digits - 1);
  const std::uint32_t exponent = magnitude / leading;
  const std::uint32_t significand = exponent == 0 ? magnitude : magnitude % leading + leading;
  return std::ldexp(static_cast<double>(significand), f.least_exponent + static_cast<int>(std::max(exponent, 1u)) - 1);
}

// first[h] is the least fp32 magnitude that rounds to the 16-bit magnitude h: the midpoint below h, or the next after it where
// the tie goes to an even h - 1. One entry past infinity: the first NaN.
template <class T>
std::vector<std::uint32_t> rounding_intervals() {
  const std::uint32_t infinity = reference::format_of<T>.infinity();
  std::vector<std::uint32_t> first = {0};
  for (std::uint32_t h = 1; h <= infinity; ++h) {
    const double midpoint = (exact_value<T>(h - 1) + exact_value<T>(h)) / 2;
    const auto as_float = static_cast<float>(midpoint);
    EXPECT_EQ(static_cast<double>(as_float), midpoint);
    first.push_back(bits(as_float) + h % 2);
  }
  first.push_back(bits(INFINITY) + 1);
  return first;
}

// Calls check(inputs, expected) for blocks of `block` fp32 values, bits begin + i * stride, until 2^32; returns how many.
constexpr std::size_t block = 4096;
template <class T, class Check>
std::uint64_t for_every_float(std::uint64_t stride, Check&& check) {
  const std::vector<std::uint32_t> first = rounding_intervals<T>();
  const std::uint32_t infinity = reference::format_of<T>.infinity();
  alignas(64) static std::array<std::uint32_t, block> inputs;
  alignas(64) static std::array<std::uint16_t, block> expected;
  std::uint64_t count = 0;
  std::size_t h = 0;
  for (std::uint64_t begin = 0; begin < 1ull << 32; begin += block * stride) {
    for (std::size_t i = 0; i < block; ++i) inputs[i] = static_cast<std::uint32_t>(begin + i * stride);
    for (std::size_t i = 0; i < block;) {
      const std::uint32_t magnitude = inputs[i] & 0x7FFFFFFFu;
      if (magnitude < first[h]) h = 0;  // a new sign
      while (h <= infinity && magnitude >= first[h + 1]) ++h;
      const std::uint64_t end = h <= infinity ? first[h + 1] : 1ull << 31;
      const std::size_t run = std::min<std::size_t>(block - i, (end - magnitude + stride - 1) / stride);
      const auto sign = static_cast<std::uint16_t>(inputs[i] >> 16 & 0x8000u);
      std::fill_n(expected.begin() + i, run, h <= infinity ? static_cast<std::uint16_t>(sign | h) : std::uint16_t{0x7FFF});
      i += run;
    }
    const std::uint64_t inside = ((1ull << 32) - begin + stride - 1) / stride;
    const std::size_t n = std::min<std::uint64_t>(block, inside);
    if (!check(inputs.data(), expected.data(), n)) return count;
    count += n;
  }
  return count;
}

std::uint64_t inputs_at_stride(std::uint64_t stride) {
  std::cout << "fp32 inputs: each " << stride << ". of 2^32\n";
  return ((1ull << 32) + stride - 1) / stride;
}

template <class T>
void narrow_with_scalar_definition(std::uint64_t stride) {
  const std::uint64_t count = for_every_float<T>(stride, [](const std::uint32_t* inputs, const std::uint16_t* expected, std::size_t n) {
    std::uint32_t wrong = 0;
    for (std::size_t i = 0; i < n; ++i) wrong |= narrow<T>(std::bit_cast<float>(inputs[i])).bits ^ expected[i];
    for (std::size_t i = 0; wrong != 0 && i < n; ++i) EXPECT_EQ(narrow<T>(std::bit_cast<float>(inputs[i])).bits, expected[i]) << std::hex << inputs[i];
    return wrong == 0;
  });
  report_count(count, inputs_at_stride(stride));
}

template <class T>
void narrow_with_kernel(std::uint64_t stride) {
  const std::uint64_t count = for_every_float<T>(stride, [](const std::uint32_t* inputs, const std::uint16_t* expected, std::size_t n) {
    alignas(64) static std::array<std::uint16_t, block> actual;
    numeric::convert(dtype_of<T>, actual.data(), Dtype::float32, inputs, n);
    const bool same = std::memcmp(actual.data(), expected, n * sizeof(std::uint16_t)) == 0;
    for (std::size_t i = 0; !same && i < n; ++i) EXPECT_EQ(actual[i], expected[i]) << std::hex << inputs[i];
    return same;
  });
  report_count(count, inputs_at_stride(stride));
}

// Odd, so that every low half of the bits comes up.
constexpr std::uint64_t stride = sanitized ? 4099 : 1;
constexpr std::uint64_t other_target_stride = sanitized ? 4099 : 7;

TEST(conversions, every_fp32_value_narrows_to_the_nearest_bf16) { narrow_with_scalar_definition<Bf16>(stride); }
TEST(conversions, every_fp32_value_narrows_to_the_nearest_fp16) { narrow_with_scalar_definition<Fp16>(stride); }
TEST(conversions, every_fp32_value_narrows_to_the_nearest_bf16_on_the_best_target) { narrow_with_kernel<Bf16>(stride); }
TEST(conversions, every_fp32_value_narrows_to_the_nearest_fp16_on_the_best_target) { narrow_with_kernel<Fp16>(stride); }

TEST(conversions, every_7th_fp32_value_narrows_to_the_nearest_on_every_target) {
  for (std::int64_t target : instruction_sets()) {
    SCOPED_TRACE(name_of_instruction_set(target));
    use_instruction_set(target);
    narrow_with_kernel<Bf16>(other_target_stride);
    narrow_with_kernel<Fp16>(other_target_stride);
    use_best_instruction_set();
  }
}

// Both forms, scalar and vector, of all 65536; NaN is widened to canonical NaN by the kernel, with its payload by the definition.
template <class T>
void widen_everything() {
  const reference::Format f = reference::format_of<T>;
  std::vector<T> all(1u << 16);
  for (std::uint32_t h = 0; h < all.size(); ++h) all[h] = from_bits<T>(h);
  std::uint64_t count = 0;
  for (std::int64_t target : instruction_sets()) {
    SCOPED_TRACE(name_of_instruction_set(target));
    use_instruction_set(target);
    std::vector<float> floats(all.size());
    std::vector<double> doubles(all.size());
    numeric::convert(Dtype::float32, floats.data(), dtype_of<T>, all.data(), all.size());
    numeric::convert(Dtype::float64, doubles.data(), dtype_of<T>, all.data(), all.size());
    use_best_instruction_set();
    for (std::uint32_t h = 0; h < all.size(); ++h) {
      const std::uint32_t magnitude = h & 0x7FFFu;
      if (magnitude > f.infinity()) {
        ASSERT_TRUE(std::isnan(widen(all[h]))) << h;
        ASSERT_EQ(bits(floats[h]), reference::fp32.nan()) << h;
        ASSERT_TRUE(std::isnan(doubles[h])) << h;
      } else {
        const double exact = std::copysign(magnitude == f.infinity() ? INFINITY : exact_value<T>(magnitude), (h & 0x8000u) ? -1.0 : 1.0);
        ASSERT_EQ(bits(widen(all[h])), bits(static_cast<float>(exact))) << h;
        ASSERT_EQ(bits(floats[h]), bits(static_cast<float>(exact))) << h;
        ASSERT_EQ(bits(doubles[h]), bits(exact)) << h;
      }
      ++count;
    }
  }
  report_count(count, instruction_sets().size() << 16);
}

TEST(conversions, every_bf16_value_widens_exactly) { widen_everything<Bf16>(); }
TEST(conversions, every_fp16_value_widens_exactly) { widen_everything<Fp16>(); }

// A double rounds once, not through the nearest fp32: beside each tie of T stand the doubles next to it, which fp32 cannot hold.
template <class T>
void round_doubles() {
  std::vector<double> inputs;
  const std::vector<std::uint32_t> first = rounding_intervals<T>();
  std::vector<std::uint16_t> expected;
  for (std::uint32_t h = 1; h + 1 < first.size(); ++h) {
    const double tie = (exact_value<T>(h - 1) + exact_value<T>(h)) / 2;
    const double neighbours[] = {std::nextafter(tie, 0.0), tie, std::nextafter(tie, INFINITY)};
    const std::uint32_t nearest[] = {h - 1, h % 2 == 0 ? h : h - 1, h};
    for (std::size_t i = 0; i < 3; ++i)
      for (std::uint32_t sign : {0u, 0x8000u}) {
        inputs.push_back(sign ? -neighbours[i] : neighbours[i]);
        expected.push_back(static_cast<std::uint16_t>(sign | nearest[i]));
      }
  }
  // Every exponent of a double: far below the range, far above it, and where an exponent could leave its field.
  const std::uint32_t infinity = reference::format_of<T>.infinity();
  for (int exponent = -1074; exponent < 1024; ++exponent)
    for (double x : {std::ldexp(1.0, exponent), std::ldexp(2.0 - std::ldexp(1.0, -52), exponent)}) {
      const double largest = exact_value<T>(infinity - 1);
      if (x > exact_value<T>(1) / 4 && x <= 2 * largest) continue;  // covered by the ties
      inputs.push_back(x);
      expected.push_back(static_cast<std::uint16_t>(x > largest ? infinity : 0));
    }
  inputs.insert(inputs.end(), {0.0, -0.0, INFINITY, -INFINITY, NAN, -NAN});
  for (std::uint32_t h : {0u, 0x8000u, infinity, infinity | 0x8000u, 0x7FFFu, 0x7FFFu}) expected.push_back(static_cast<std::uint16_t>(h));

  std::uint64_t count = 0;
  for (std::int64_t target : instruction_sets()) {
    SCOPED_TRACE(name_of_instruction_set(target));
    use_instruction_set(target);
    std::vector<T> actual(inputs.size());
    numeric::convert(dtype_of<T>, actual.data(), Dtype::float64, inputs.data(), inputs.size());
    use_best_instruction_set();
    for (std::size_t i = 0; i < inputs.size(); ++i, ++count) {
      T filled;
      numeric::fill(dtype_of<T>, &filled, inputs[i], 1);
      ASSERT_EQ(bits(actual[i]), expected[i]) << inputs[i];
      ASSERT_EQ(bits(numeric::narrow_double<T>(inputs[i])), expected[i]) << inputs[i];
      ASSERT_EQ(bits(filled), expected[i]) << inputs[i];
    }
  }
  report_count(count, instruction_sets().size() * inputs.size());
}

TEST(conversions, doubles_round_once_to_bf16_beside_every_tie) { round_doubles<Bf16>(); }
TEST(conversions, doubles_round_once_to_fp16_beside_every_tie) { round_doubles<Fp16>(); }

TEST(conversions, doubles_round_once_to_fp32) {
  Random random(5);
  std::vector<double> inputs = {0.0, -0.0, INFINITY, -INFINITY, NAN, std::ldexp(1.0, 128), std::ldexp(1.0, 128) - std::ldexp(1.0, 103)};
  for (float x : interesting_values<float>()) {
    if (!std::isfinite(x)) continue;
    const float above = std::nextafter(x, INFINITY);
    const double tie = std::isfinite(above) ? (static_cast<double>(x) + static_cast<double>(above)) / 2 : static_cast<double>(x);
    inputs.insert(inputs.end(), {static_cast<double>(x), tie, std::nextafter(tie, INFINITY), std::nextafter(tie, -INFINITY)});
  }
  for (int i = 0; i < 10000; ++i) {
    const std::uint64_t exponent = 1023 - 180 + random.below(320);  // 2^-180..2^140
    inputs.push_back(from_bits<double>((random.next() & ~(0x7FFull << 52)) | exponent << 52));
  }
  std::erase_if(inputs, [](double x) { return x != 0 && std::abs(x) < std::ldexp(1.0, -240); });
  std::uint64_t count = 0;
  for (std::int64_t target : instruction_sets()) {
    SCOPED_TRACE(name_of_instruction_set(target));
    use_instruction_set(target);
    std::vector<float> actual(inputs.size());
    numeric::convert(Dtype::float32, actual.data(), Dtype::float64, inputs.data(), inputs.size());
    use_best_instruction_set();
    for (std::size_t i = 0; i < inputs.size(); ++i, ++count) ASSERT_EQ(bits(actual[i]), reference::encode(reference::fp32, reference::decode_double(inputs[i]))) << inputs[i];
  }
  report_count(count, instruction_sets().size() * inputs.size());
}

}  // namespace
}  // namespace gradledger::testing
