// Floating point by definition: a value is an exact integer multiple of 2^-298, an operation is done exactly, and one rounding
// to nearest even ends it. Slow, obvious, and without a line in common with sim/numeric.
#pragma once

#include <algorithm>
#include <bit>
#include <boost/multiprecision/cpp_int.hpp>
#include <cstdint>
#include <stdexcept>

#include "sim/numeric/dtype.h"
#include "sim/numeric/scalar.h"

namespace gradledger::reference {

namespace mp = boost::multiprecision;

// Products of two fp32 values reach from 2^-298 to 2^256; division needs room for the digits of its quotient.
using Integer = mp::number<mp::cpp_int_backend<704, 704, mp::signed_magnitude, mp::unchecked, void>>;
inline constexpr int unit_exponent = -298;

struct Format {
  int digits;          // of the significand, the leading one included
  int least_exponent;  // of the units digit of a subnormal
  int width;

  std::uint32_t sign_bit() const { return 1u << (width - 1); }
  std::uint32_t infinity() const { return ((1u << (width - digits)) - 1) << (digits - 1); }
  std::uint32_t nan() const { return sign_bit() - 1; }
};
inline constexpr Format fp32{24, -149, 32};
inline constexpr Format bf16{8, -133, 16};
inline constexpr Format fp16{11, -24, 16};

template <class T>
inline constexpr Format format_of = fp32;
template <>
inline constexpr Format format_of<numeric::Bf16> = bf16;
template <>
inline constexpr Format format_of<numeric::Fp16> = fp16;

struct Value {
  enum Kind : std::uint8_t { finite, infinite, nan } kind = finite;
  bool negative = false;  // of zero, too
  Integer magnitude = 0;  // in units of 2^unit_exponent
};

inline Value decode(Format format, std::uint32_t bits) {
  const bool negative = (bits & format.sign_bit()) != 0;
  const std::uint32_t magnitude = bits & (format.sign_bit() - 1);
  if (magnitude > format.infinity()) return {Value::nan};
  if (magnitude == format.infinity()) return {Value::infinite, negative};
  const std::uint32_t leading = 1u << (format.digits - 1);
  const std::uint32_t exponent = magnitude / leading;
  const std::uint32_t fraction = magnitude % leading;
  const Integer significand = exponent == 0 ? fraction : fraction + leading;
  const int scale = format.least_exponent + (exponent == 0 ? 0 : static_cast<int>(exponent) - 1);
  return {Value::finite, negative, significand << (scale - unit_exponent)};
}

// The nearest value of the format, ties to the even one; NaN as its canonical bits.
inline std::uint32_t encode(Format format, const Value& value) {
  if (value.kind == Value::nan) return format.nan();
  const std::uint32_t sign = value.negative ? format.sign_bit() : 0;
  if (value.kind == Value::infinite) return sign | format.infinity();
  if (value.magnitude == 0) return sign;
  const int exponent = static_cast<int>(mp::msb(value.magnitude)) + unit_exponent;
  const int quantum = std::max(exponent - format.digits + 1, format.least_exponent);
  const int dropped = quantum - unit_exponent;
  Integer kept = value.magnitude >> dropped;
  const Integer twice_rest = (value.magnitude - (kept << dropped)) << 1;
  const Integer one_quantum = Integer(1) << dropped;
  const bool odd = (kept & 1) != 0;
  if (twice_rest > one_quantum || (twice_rest == one_quantum && odd)) ++kept;
  // Consecutive values have consecutive bits, from zero through the subnormals to infinity.
  const auto binades = static_cast<std::uint64_t>(quantum - format.least_exponent);
  const std::uint64_t bits = (binades << (format.digits - 1)) + kept.convert_to<std::uint64_t>();
  return sign | static_cast<std::uint32_t>(std::min<std::uint64_t>(bits, format.infinity()));
}

// A double that is a multiple of 2^unit_exponent and below 2^300, or no number.
inline Value decode_double(double x) {
  if (x != x) return {Value::nan};
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  const bool negative = (bits >> 63) != 0;
  const int exponent = static_cast<int>(bits >> 52 & 0x7FF);
  if (exponent == 0x7FF) return {Value::infinite, negative};
  if ((bits << 1) == 0) return {Value::finite, negative};
  const int shift = exponent - 1075 - unit_exponent;
  if (exponent == 0 || shift < 0 || exponent > 1023 + 300) throw std::out_of_range("a double beyond the reference's range");
  return {Value::finite, negative, Integer((bits & ((1ull << 52) - 1)) | 1ull << 52) << shift};
}

inline Value sum(const Value& a, const Value& b) {
  if (a.kind == Value::nan || b.kind == Value::nan) return {Value::nan};
  if (a.kind == Value::infinite && b.kind == Value::infinite) return a.negative == b.negative ? a : Value{Value::nan};
  if (a.kind == Value::infinite) return a;
  if (b.kind == Value::infinite) return b;
  if (a.negative == b.negative) return {Value::finite, a.negative, a.magnitude + b.magnitude};
  if (a.magnitude == b.magnitude) return {};  // +0: the rule of round to nearest
  if (a.magnitude > b.magnitude) return {Value::finite, a.negative, a.magnitude - b.magnitude};
  return {Value::finite, b.negative, b.magnitude - a.magnitude};
}

inline Value product(const Value& a, const Value& b) {
  const bool negative = a.negative != b.negative;
  if (a.kind == Value::nan || b.kind == Value::nan) return {Value::nan};
  if (a.kind == Value::infinite || b.kind == Value::infinite) {
    const bool zero = (a.kind == Value::finite && a.magnitude == 0) || (b.kind == Value::finite && b.magnitude == 0);
    return zero ? Value{Value::nan} : Value{Value::infinite, negative};
  }
  // Both are multiples of 2^-149, so nothing is lost by the shifts.
  return {Value::finite, negative, (a.magnitude >> -unit_exponent / 2) * (b.magnitude >> -unit_exponent / 2)};
}

// The quotient, cut below 2^unit_exponent with a one in its last place if anything was lost: enough for one rounding to fp32.
inline Value quotient(const Value& a, const Value& b) {
  const bool negative = a.negative != b.negative;
  if (a.kind == Value::nan || b.kind == Value::nan) return {Value::nan};
  if (a.kind == Value::infinite) return b.kind == Value::infinite ? Value{Value::nan} : Value{Value::infinite, negative};
  if (b.kind == Value::infinite) return {Value::finite, negative};
  if (b.magnitude == 0) return a.magnitude == 0 ? Value{Value::nan} : Value{Value::infinite, negative};
  // fp32 spans 2^-149..2^128: past 2^260 the quotient is infinite in every format, and its magnitude needs no more bits.
  using Wide = mp::number<mp::cpp_int_backend<1408, 1408, mp::signed_magnitude, mp::unchecked, void>>;
  const Wide numerator = Wide(a.magnitude) << -unit_exponent;
  const Wide denominator = Wide(b.magnitude);
  Wide floor = numerator / denominator;
  if (floor * denominator != numerator) floor |= 1;
  return {Value::finite, negative, Integer(floor)};
}

inline std::uint32_t convert(Format to, Format from, std::uint32_t x) { return encode(to, decode(from, x)); }
inline std::uint32_t add(Format f, std::uint32_t a, std::uint32_t b) { return encode(f, sum(decode(f, a), decode(f, b))); }
inline std::uint32_t multiply(Format f, std::uint32_t a, std::uint32_t b) { return encode(f, product(decode(f, a), decode(f, b))); }
inline std::uint32_t divide(Format f, std::uint32_t a, std::uint32_t b) { return encode(f, quotient(decode(f, a), decode(f, b))); }
inline std::uint32_t fused(Format f, std::uint32_t a, std::uint32_t b, std::uint32_t c) { return encode(f, sum(product(decode(f, a), decode(f, b)), decode(f, c))); }

}  // namespace gradledger::reference
