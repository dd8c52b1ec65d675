// One correctly rounded operation at a time: conversions of bf16 and fp16, and the named wrappers add, mul, div, fma.
// Round to nearest even throughout; NaN results are canonical (0x7fffffff, 0x7fff), as on the GPU, so that bits can be compared.
// Compiled by g++ here and by nvcc in gpu/; contraction is off in both (cmake/Arithmetic.cmake).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define GRADLEDGER_HD __host__ __device__
#else
#define GRADLEDGER_HD
#endif

namespace gradledger::numeric {

// The stored form of the 16-bit types. A distinct type each, so that no bits are read under the wrong format.
struct Bf16 {
  std::uint16_t bits;
};
struct Fp16 {
  std::uint16_t bits;
};

GRADLEDGER_HD inline std::uint32_t bits_of(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  return std::bit_cast<std::uint32_t>(x);
#endif
}

GRADLEDGER_HD inline float float_of(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

GRADLEDGER_HD inline float canonical(float x) { return x != x ? float_of(0x7FFFFFFFu) : x; }

// ---- conversions ------------------------------------------------------------------------------------------------------------

GRADLEDGER_HD inline float widen(float x) { return x; }
GRADLEDGER_HD inline float widen(Bf16 x) { return float_of(static_cast<std::uint32_t>(x.bits) << 16); }

// Exact: every fp16 value, subnormals included, is an fp32 value. A NaN keeps its payload.
GRADLEDGER_HD inline float widen(Fp16 x) {
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = x.bits & 0x7FFFu;
  if (magnitude >= 0x7C00u) return float_of(sign | 0x7F800000u | ((magnitude & 0x3FFu) << 13));
#ifdef __CUDA_ARCH__
  // The arithmetic below would keep fp16 kernels from the speed of memory.
  float exact;
  asm("cvt.f32.f16 %0, %1;" : "=f"(exact) : "h"(x.bits));
  return exact;
#endif
  if (magnitude >= 0x0400u) return float_of(sign | ((magnitude << 13) + 0x38000000u));
  // Subnormal: the significand as an integer, times 2^-24. Both factors and the product are exact in fp32.
  return float_of(sign | bits_of(static_cast<float>(magnitude) * float_of(0x33800000u)));
}

// RN-even; overflow to infinity; subnormals kept; NaN to 0x7FFF.
GRADLEDGER_HD inline Bf16 to_bf16(float x) {
  std::uint32_t bits = bits_of(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {0x7FFFu};
#ifdef __CUDA_ARCH__
  std::uint16_t nearest;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(nearest) : "f"(x));
  return {nearest};
#endif
  bits += 0x7FFFu + ((bits >> 16) & 1u);
  return {static_cast<std::uint16_t>(bits >> 16)};
}

// RN-even; 65520 and above to infinity; subnormals kept down to 2^-24; NaN to 0x7FFF.
GRADLEDGER_HD inline Fp16 to_fp16(float x) {
  const std::uint32_t bits = bits_of(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {0x7FFFu};
#ifdef __CUDA_ARCH__
  std::uint16_t nearest;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(nearest) : "f"(x));
  return {nearest};
#endif
  if (magnitude >= 0x477FF000u) return {static_cast<std::uint16_t>(sign | 0x7C00u)};
  if (magnitude >= 0x38800000u) {
    const std::uint32_t rounded = magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u);
    return {static_cast<std::uint16_t>(sign | (rounded >> 13))};
  }
  // Below 2^-14: adding 0.5 aligns the units digit of fp32 with 2^-24, so the hardware's own RN-even does the rounding.
  const float aligned = float_of(magnitude) + 0.5f;
  return {static_cast<std::uint16_t>(sign | (bits_of(aligned) - 0x3F000000u))};
}

template <class T>
GRADLEDGER_HD T narrow(float x);
template <>
GRADLEDGER_HD inline float narrow<float>(float x) {
  return canonical(x);
}
template <>
GRADLEDGER_HD inline Bf16 narrow<Bf16>(float x) {
  return to_bf16(x);
}
template <>
GRADLEDGER_HD inline Fp16 narrow<Fp16>(float x) {
  return to_fp16(x);
}

// ---- one rounding each ------------------------------------------------------------------------------------------------------
// For add, mul and div on the 16-bit types, the fp32 operation followed by RN equals one rounding, because 24 >= 2p + 2.

template <class T>
GRADLEDGER_HD T add(T a, T b) {
  return narrow<T>(widen(a) + widen(b));
}
template <class T>
GRADLEDGER_HD T mul(T a, T b) {
  return narrow<T>(widen(a) * widen(b));
}
template <class T>
GRADLEDGER_HD T div(T a, T b) {
  return narrow<T>(widen(a) / widen(b));
}

GRADLEDGER_HD inline float fma(float a, float b, float c) { return canonical(::fmaf(a, b, c)); }

// a + b rounded to odd: the truncated sum with its last bit set when it was inexact. A later RN to at most 51 bits is then the
// rounding of the exact sum (Boldo and Melquiond 2008).
GRADLEDGER_HD inline double add_round_to_odd(double a, double b) {
  const double sum = a + b;
  if (!(sum - sum == 0.0)) return sum;  // infinite or NaN
  const double rest = sum - a;
  const double error = (a - (sum - rest)) + (b - rest);  // TwoSum (Knuth): exact
  if (error == 0.0) return sum;
#ifdef __CUDA_ARCH__
  std::uint64_t bits = static_cast<std::uint64_t>(__double_as_longlong(sum));
#else
  std::uint64_t bits = std::bit_cast<std::uint64_t>(sum);
#endif
  if (bits & 1u) return sum;
  const bool away_from_zero = (error > 0.0) == (sum > 0.0);
  bits = away_from_zero ? bits + 1 : bits - 1;
#ifdef __CUDA_ARCH__
  return __longlong_as_double(static_cast<long long>(bits));
#else
  return std::bit_cast<double>(bits);
#endif
}

// A double to fp32, rounded to odd, so that the RN to 16 bits that follows rounds once.
GRADLEDGER_HD inline float to_float_round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  if (!(x - x == 0.0) || static_cast<double>(nearest) == x) return nearest;
  std::uint32_t bits = bits_of(nearest);
  if (bits & 1u) return nearest;
  if ((bits & 0x7FFFFFFFu) == 0x7F800000u) return nearest;  // far beyond the range of a 16-bit product
  const double magnitude = x < 0 ? -x : x;
  const float nearest_magnitude = float_of(bits & 0x7FFFFFFFu);
  bits = magnitude > static_cast<double>(nearest_magnitude) ? bits + 1 : bits - 1;
  return float_of(bits);
}

// One rounding from a double.
template <class T>
GRADLEDGER_HD T narrow_double(double x) {
  return narrow<T>(to_float_round_to_odd(x));
}
template <>
GRADLEDGER_HD inline float narrow_double<float>(double x) {
  return canonical(static_cast<float>(x));
}

// Exactly rounded fma of 16-bit values. fmaf followed by RN is not: it differs in some of the ties.
// The product of two 11-bit significands is exact in a double; the sum is rounded to odd; one RN ends it.
template <class T>
GRADLEDGER_HD T fma16(T a, T b, T c) {
  const double product = static_cast<double>(widen(a)) * static_cast<double>(widen(b));
  return narrow_double<T>(add_round_to_odd(product, static_cast<double>(widen(c))));
}
GRADLEDGER_HD inline Bf16 fma(Bf16 a, Bf16 b, Bf16 c) { return fma16(a, b, c); }
GRADLEDGER_HD inline Fp16 fma(Fp16 a, Fp16 b, Fp16 c) { return fma16(a, b, c); }

}  // namespace gradledger::numeric
