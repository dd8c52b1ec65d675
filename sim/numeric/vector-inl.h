// The definitions of sim/numeric/scalar.h on vectors, bit for bit: widening, rounding, and the exact fused multiply-add.
// Included once for each instruction set (see kernels_simd.cpp). `d` is the tag of the lanes that an operation computes in.
#include "hwy/highway.h"

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "sim/numeric/scalar.h"

#if defined(GRADLEDGER_VECTOR_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADLEDGER_VECTOR_INL
#undef GRADLEDGER_VECTOR_INL
#else
#define GRADLEDGER_VECTOR_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace gradledger::numeric {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Highway's MulAdd is one rounding only where the instruction set has a fused multiply-add; elsewhere it is two.
#if HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4 || defined(HWY_DISABLE_BMI2_FMA)
inline constexpr bool has_fused_multiply_add = false;
#else
inline constexpr bool has_fused_multiply_add = true;
#endif

// Where the processor converts fp16 itself: exact one way, one rounding to nearest even the other, subnormals kept. Elsewhere Highway's
// emulation rounds otherwise.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
inline constexpr bool converts_fp16 = true;
#else
inline constexpr bool converts_fp16 = false;
#endif

template <class D>
using Floats = hn::Rebind<float, D>;
template <class D>
using Words = hn::Rebind<std::int32_t, D>;
template <class D>
using HalfWords = hn::Rebind<std::uint16_t, D>;

// ---- conversions ------------------------------------------------------------------------------------------------------------

template <class D>
HWY_INLINE hn::VFromD<Words<D>> load_half_words(D, const void* source) {
  return hn::PromoteTo(Words<D>(), hn::LoadU(HalfWords<D>(), static_cast<const std::uint16_t*>(source)));
}

// Every load_widened is the exact fp32 value of as many elements as `d` has lanes.
template <class D>
HWY_INLINE hn::VFromD<Floats<D>> load_widened(D, const float* source) {
  return hn::LoadU(Floats<D>(), source);
}

template <class D>
HWY_INLINE hn::VFromD<Floats<D>> load_widened(D d, const Bf16* source) {
  return hn::BitCast(Floats<D>(), hn::ShiftLeft<16>(load_half_words(d, source)));
}

template <class D>
HWY_INLINE hn::VFromD<Floats<D>> load_widened(D d, const Fp16* source) {
  const Words<D> dw;
  const Floats<D> df;
  if constexpr (converts_fp16) {
    const hn::Rebind<hwy::float16_t, D> dh;
    return hn::PromoteTo(df, hn::BitCast(dh, hn::LoadU(HalfWords<D>(), reinterpret_cast<const std::uint16_t*>(source))));
  }
  const auto bits = load_half_words(d, source);
  const auto magnitude = hn::And(bits, hn::Set(dw, 0x7FFF));
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  const auto rebias = hn::Set(dw, 0x38000000);
  const auto normal = hn::Add(shifted, rebias);
  const auto special = hn::Add(normal, rebias);
  // Subnormal: as the last bits of 2^-14 and up, less 2^-14; the difference is exact.
  const auto lifted = hn::BitCast(df, hn::Add(shifted, hn::Set(dw, 0x38800000)));
  const auto subnormal = hn::BitCast(dw, hn::Sub(lifted, hn::BitCast(df, hn::Set(dw, 0x38800000))));
  auto widened = hn::IfThenElse(hn::Gt(magnitude, hn::Set(dw, 0x7BFF)), special, normal);
  widened = hn::IfThenElse(hn::Lt(magnitude, hn::Set(dw, 0x0400)), subnormal, widened);
  return hn::BitCast(df, hn::Or(widened, hn::ShiftLeft<16>(hn::Xor(bits, magnitude))));
}

template <class D, class V>
HWY_INLINE void store_half_words(D, V words, void* target) {
  const hn::Rebind<std::uint32_t, D> du;
  hn::StoreU(hn::TruncateTo(HalfWords<D>(), hn::BitCast(du, words)), HalfWords<D>(), static_cast<std::uint16_t*>(target));
}

// Every store_narrowed rounds fp32 values once, to nearest even; NaN becomes canonical.
template <class D, class V>
HWY_INLINE void store_narrowed(D, V x, float* target) {
  const Floats<D> df;
  const auto canonical_nan = hn::BitCast(df, hn::Set(Words<D>(), 0x7FFFFFFF));
  hn::StoreU(hn::IfThenElse(hn::IsNaN(x), canonical_nan, x), df, target);
}

template <class D, class V>
HWY_INLINE void store_narrowed(D d, V x, Bf16* target) {
  const Words<D> dw;
  const auto bits = hn::BitCast(dw, x);
  const auto last_kept = hn::And(hn::ShiftRight<16>(bits), hn::Set(dw, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(dw, 0x7FFF)), last_kept));
  const auto nan = hn::Gt(hn::And(bits, hn::Set(dw, 0x7FFFFFFF)), hn::Set(dw, 0x7F800000));
  store_half_words(d, hn::IfThenElse(nan, hn::Set(dw, 0x7FFF), rounded), target);
}

template <class D, class V>
HWY_INLINE void store_narrowed(D d, V x, Fp16* target) {
  const Words<D> dw;
  const Floats<D> df;
  if constexpr (converts_fp16) {
    const hn::Rebind<std::int16_t, D> di;
    const auto halves = hn::BitCast(di, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), x));
    const auto infinity = hn::Set(di, 0x7C00), canonical_nan = hn::Set(di, 0x7FFF);
    const auto nan = hn::Gt(hn::And(halves, canonical_nan), infinity);
    return hn::StoreU(hn::IfThenElse(nan, canonical_nan, halves), di, reinterpret_cast<std::int16_t*>(target));
  }
  const auto bits = hn::BitCast(dw, x);
  const auto magnitude = hn::And(bits, hn::Set(dw, 0x7FFFFFFF));
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(dw, 0x8000));
  // 65520, the least magnitude that becomes infinite, rounds to the bits of infinity by itself.
  const auto clamped = hn::Min(magnitude, hn::Set(dw, 0x477FF000));
  const auto last_kept = hn::And(hn::ShiftRight<13>(clamped), hn::Set(dw, 1));
  const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(clamped, hn::Set(dw, 0xFFF - 0x38000000)), last_kept));
  // Below 2^-14: adding 0.5 aligns the units digit of fp32 with 2^-24, so the hardware's own RN-even does the rounding.
  const auto aligned = hn::BitCast(dw, hn::Add(hn::BitCast(df, magnitude), hn::Set(df, 0.5f)));
  const auto subnormal = hn::Sub(aligned, hn::Set(dw, 0x3F000000));
  const auto rounded = hn::Or(sign, hn::IfThenElse(hn::Lt(magnitude, hn::Set(dw, 0x38800000)), subnormal, normal));
  const auto nan = hn::Gt(magnitude, hn::Set(dw, 0x7F800000));
  store_half_words(d, hn::IfThenElse(nan, hn::Set(dw, 0x7FFF), rounded), target);
}

// Exact, for widening to double.
template <class D, class V>
HWY_INLINE void store_narrowed(D d, V x, double* target) {
  hn::StoreU(x, d, target);
}

// ---- one rounding from double -----------------------------------------------------------------------------------------------

// Rounds a double to the precision and the least quantum of T, to nearest even: adding 2^(53 - digits) times the power of two of
// x leaves the digits of T and no more, subtracting it is exact. Infinite and NaN pass; what overflows T is left to narrowing.
template <class T, class D, class V>
HWY_INLINE V round_to_format(D d, V x) {
  constexpr int digits = std::is_same_v<T, Bf16> ? 8 : 11;
  constexpr double least_normal = std::is_same_v<T, Bf16> ? 0x1p-126 : 0x1p-14;
  const hn::Rebind<std::int64_t, D> di;
  const auto magnitude = hn::Abs(x);
  // Past 2^200 every T is infinite; the bound keeps the shifted exponent in its field.
  const auto scale = hn::Min(hn::Max(magnitude, hn::Set(d, least_normal)), hn::Set(d, 0x1p200));
  const auto exponent = hn::And(hn::BitCast(di, scale), hn::Set(di, 0x7FF0000000000000));
  const auto aligner = hn::BitCast(d, hn::Add(exponent, hn::Set(di, std::int64_t{53 - digits} << 52)));
  return hn::CopySign(hn::Sub(hn::Add(magnitude, aligner), aligner), x);
}

// Doubles to fp32 values that the narrowing to T no longer changes: one rounding in all.
template <class T, class D, class V>
HWY_INLINE hn::VFromD<Floats<D>> demote_for(D d, V x) {
  if constexpr (std::is_same_v<T, float>) return hn::DemoteTo(Floats<D>(), x);
  else return hn::DemoteTo(Floats<D>(), round_to_format<T>(d, x));
}

// a + b rounded to odd, as numeric::add_round_to_odd, in lanes of either width.
template <class D, class V>
HWY_INLINE V add_round_to_odd(D d, V a, V b) {
  const hn::RebindToSigned<D> di;
  const V sum = hn::Add(a, b);
  const V rest = hn::Sub(sum, a);
  const V error = hn::Add(hn::Sub(a, hn::Sub(sum, rest)), hn::Sub(b, rest));
  // False for NaN, which an infinite sum leaves here.
  const auto inexact = hn::BitCast(di, hn::VecFromMask(d, hn::Gt(hn::Abs(error), hn::Zero(d))));
  const auto rounded_away = hn::BroadcastSignBit(hn::BitCast(di, hn::Xor(error, sum)));
  const auto truncated = hn::Add(hn::BitCast(di, sum), hn::And(inexact, rounded_away));
  return hn::BitCast(d, hn::Or(truncated, hn::And(inexact, hn::Set(di, 1))));
}

// a * b + c of fp32 values, ready for the one rounding into T. The product of two T is exact in D's lanes, and so is the error of
// the sum: for fp16 these may be fp32, whose 24 digits and range hold both; bf16 and fp32 need doubles.
template <class T, class D, class V>
HWY_INLINE V exact_fused(D d, V a, V b, V c) {
  if constexpr (std::is_same_v<hn::TFromD<D>, float>) {
    static_assert(std::is_same_v<T, Fp16>);
    return add_round_to_odd(d, hn::Mul(a, b), c);
  } else {
    const auto product = hn::Mul(hn::PromoteTo(d, a), hn::PromoteTo(d, b));
    return demote_for<T>(d, add_round_to_odd(d, product, hn::PromoteTo(d, c)));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace gradledger::numeric
HWY_AFTER_NAMESPACE();

#endif  // GRADLEDGER_VECTOR_INL
