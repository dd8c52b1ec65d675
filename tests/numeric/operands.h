// Operands for the arithmetic tests: the values at which roundings go wrong, and reproducible random ones.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "sim/numeric/dtype.h"
#include "sim/numeric/scalar.h"
#include "tests/numeric/reference.h"
#include "tests/support/sanitized.h"

namespace gradledger::testing {

using numeric::Bf16;
using numeric::Fp16;

template <class T>
inline constexpr Dtype dtype_of = Dtype::float32;
template <>
inline constexpr Dtype dtype_of<Bf16> = Dtype::bfloat16;
template <>
inline constexpr Dtype dtype_of<Fp16> = Dtype::float16;
template <>
inline constexpr Dtype dtype_of<double> = Dtype::float64;

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;
template <class T>
BitsOf<T> bits(T x) {
  return std::bit_cast<BitsOf<T>>(x);
}
template <class T>
T from_bits(std::uint64_t x) {
  return std::bit_cast<T>(static_cast<BitsOf<T>>(x));
}

// SplitMix64: the same numbers on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t limit) { return next() % limit; }

 private:
  std::uint64_t state_;
};

// How many comparisons a test made, in its log: a test that compares nothing must not pass.
inline void report_count(std::uint64_t count, std::uint64_t expected) {
  ::testing::Test::RecordProperty("compared", std::to_string(count));
  EXPECT_EQ(count, expected) << "comparisons made";
  EXPECT_GT(count, 0u);
}

// Both signs of: zero, the subnormals' ends, the normals' ends, one and its neighbours, powers of two over the whole range with
// full and almost empty significands, the largest, infinity, NaNs of several payloads; for fp32 also the ties of the narrow types.
template <class T>
std::vector<T> interesting_values(std::size_t random_count = 24) {
  const reference::Format f = reference::format_of<T>;
  const std::uint32_t leading = 1u << (f.digits - 1);
  const std::uint32_t one = (f.infinity() / 2) & ~(leading - 1);  // exponent all ones but the last, halved: the bias
  std::vector<std::uint32_t> magnitudes = {0,
                                           1,
                                           2,
                                           3,
                                           leading / 2,
                                           leading - 2,
                                           leading - 1,
                                           leading,
                                           leading + 1,
                                           leading + 2,
                                           one - 2,
                                           one - 1,
                                           one,
                                           one + 1,
                                           one + 2,
                                           one + 3,
                                           one + leading / 2,
                                           one + leading - 1,
                                           f.infinity() - 2,
                                           f.infinity() - 1,
                                           f.infinity(),
                                           f.infinity() + 1,
                                           f.infinity() + leading / 2,
                                           f.infinity() + leading / 2 + 1,
                                           f.nan() - 1,
                                           f.nan()};
  const std::uint32_t exponents = f.infinity() / leading;
  for (std::uint32_t e = 1; e < exponents; e += exponents / 16)
    for (std::uint32_t fraction : {0u, 1u, leading / 2, leading / 2 + 1, leading - 1}) magnitudes.push_back(e * leading + fraction);
  if constexpr (std::is_same_v<T, float>) {
    for (std::uint32_t exponent : {0u, 1u, 102u, 103u, 112u, 113u, 127u, 142u, 143u, 200u, 254u})
      for (std::uint32_t tie : {0x8000u, 0x18000u, 0x7F8000u, 0x1000u, 0x3000u, 0x7FF000u})
        for (std::uint32_t near : {tie - 1, tie, tie + 1}) magnitudes.push_back(exponent << 23 | near);
  }
  Random random(2024);
  for (std::size_t i = 0; i < random_count; ++i) magnitudes.push_back(static_cast<std::uint32_t>(random.next()) & f.nan());
  std::vector<T> values;
  for (std::uint32_t magnitude : magnitudes)
    for (std::uint32_t sign : {0u, f.sign_bit()}) values.push_back(from_bits<T>(magnitude | sign));
  return values;
}

}  // namespace gradledger::testing
