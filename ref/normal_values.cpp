// Compiled once for every instruction set that Highway knows, as sim/numeric/kernels_simd.cpp is.
#include "ref/normal_values.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ref/normal_values.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <bit>
#include <cstddef>

#include "sim/base/contract.h"
#include "sim/base/hash.h"

HWY_BEFORE_NAMESPACE();
namespace gradledger::ref {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Words = hn::ScalableTag<std::uint64_t>;
using Doubles = hn::ScalableTag<double>;

inline constexpr std::uint64_t every_other = 0x0000FFFF0000FFFF;
inline constexpr std::uint64_t whole_numbers = 0x4338000000000000;  // the bits of 2^52 + 2^51: whole numbers are added to its last ones
inline constexpr int fp64_bits = 53;

// ---- one element ------------------------------------------------------------------------------------------------------------------------

HWY_INLINE std::uint64_t bits_dropped(int bits) { return (std::uint64_t{1} << (fp64_bits - bits)) - 1; }

HWY_INLINE double normal_of(std::uint64_t key, std::uint64_t dropped, double factor) {
  std::uint64_t lanes = 0;  // two sums of six
  for (std::uint64_t word = 0; word < 3; ++word) {
    const std::uint64_t random = mix(key + word);
    lanes += (random & every_other) + (random >> 16 & every_other);
  }
  const std::uint64_t sum = (lanes >> 32) + (lanes & 0xFFFFFFFF) - 12 * 0x8000;
  const double whole = std::bit_cast<double>(whole_numbers + sum) - std::bit_cast<double>(whole_numbers);
  return factor * (std::bit_cast<double>(std::bit_cast<std::uint64_t>(whole) & ~dropped) * 0x1p-16);
}

// On the bits: the carry goes into the exponent.
HWY_INLINE double rounded_of(double x, std::uint64_t dropped, int drop) {
  const auto word = std::bit_cast<std::uint64_t>(x);
  return std::bit_cast<double>((word + (dropped >> 1) + (word >> drop & 1)) & ~dropped);
}

// ---- a vector of them -------------------------------------------------------------------------------------------------------------------

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
// The lower half of the product.
template <class V>
HWY_INLINE V times(V a, std::uint64_t constant) {
  const Words d;
  const V b = hn::Set(d, constant);
#if HWY_TARGET <= HWY_AVX3
  return hn::Mul(a, b);
#else
  const hn::RepartitionToNarrow<Words> half;
  const auto low = hn::BitCast(half, a), other_low = hn::BitCast(half, b);
  const V cross = hn::Add(hn::MulEven(hn::BitCast(half, hn::ShiftRight<32>(a)), other_low), hn::MulEven(low, hn::BitCast(half, hn::ShiftRight<32>(b))));
  return hn::Add(hn::MulEven(low, other_low), hn::ShiftLeft<32>(cross));
#endif
}

// mix() of sim/base/hash.h.
template <class V>
HWY_INLINE V mixed(V x) {
  const Words d;
  x = hn::Add(x, hn::Set(d, 0x9E3779B97F4A7C15u));
  x = times(hn::Xor(x, hn::ShiftRight<30>(x)), 0xBF58476D1CE4E5B9u);
  x = times(hn::Xor(x, hn::ShiftRight<27>(x)), 0x94D049BB133111EBu);
  return hn::Xor(x, hn::ShiftRight<31>(x));
}

template <class V>
HWY_INLINE auto normals_of(V key, std::uint64_t dropped, double factor) {
  const Words d;
  const Doubles f;
  const auto mask = hn::Set(d, every_other);
  auto lanes = hn::Zero(d);
  for (std::uint64_t word = 0; word < 3; ++word) {
    const auto random = mixed(hn::Add(key, hn::Set(d, word)));
    lanes = hn::Add(lanes, hn::Add(hn::And(random, mask), hn::And(hn::ShiftRight<16>(random), mask)));
  }
  const auto sum = hn::Sub(hn::Add(hn::ShiftRight<32>(lanes), hn::And(lanes, hn::Set(d, 0xFFFFFFFFu))), hn::Set(d, 12 * 0x8000));
  const auto zero = hn::Set(d, whole_numbers);
  const auto whole = hn::Sub(hn::BitCast(f, hn::Add(zero, sum)), hn::BitCast(f, zero));
  const auto kept = hn::BitCast(f, hn::AndNot(hn::Set(d, dropped), hn::BitCast(d, whole)));
  return hn::Mul(hn::Set(f, factor), hn::Mul(kept, hn::Set(f, 0x1p-16)));
}
#endif

// value = 1 + the upper half of the word modulo `most`. Both are below 2^32, so that their quotient in fp64 has the right whole part.
HWY_INLINE double whole_of(std::uint64_t word, std::uint32_t most, double unit) { return unit * static_cast<double>(1 + static_cast<std::uint32_t>(word >> 32) % most); }

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
template <class V>
HWY_INLINE auto wholes_of(V word, std::uint32_t most, double unit) {
  const Words d;
  const Doubles f;
  constexpr std::uint64_t bits_of_2_52 = 0x4330000000000000;
  const auto upper = hn::Sub(hn::BitCast(f, hn::Or(hn::ShiftRight<32>(word), hn::Set(d, bits_of_2_52))), hn::Set(f, 0x1p52));
  const auto divisor = hn::Set(f, most);
  const auto rest = hn::Sub(upper, hn::Mul(hn::Floor(hn::Div(upper, divisor)), divisor));
  return hn::Mul(hn::Set(f, unit), hn::Add(rest, hn::Set(f, 1.0)));
}
#endif

void draw_wholes(std::uint64_t keys, std::uint64_t first, std::uint32_t stride, std::uint32_t most, double unit, double* out, std::size_t n) {
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const Words d;
  const Doubles f;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN double some[HWY_MAX_BYTES / sizeof(double)];
  const auto own = hn::Set(d, keys);
  auto element = hn::Add(hn::Set(d, first), times(hn::Iota(d, 0), stride));
  for (; i + lanes <= n; i += lanes, element = hn::Add(element, hn::Set(d, lanes * stride))) {
    const auto values = wholes_of(mixed(hn::Xor(own, mixed(element))), most, unit);
    if (stride == 1) {
      hn::StoreU(values, f, out + i);
      continue;
    }
    hn::Store(values, f, some);
    for (std::size_t lane = 0; lane < lanes; ++lane) out[(i + lane) * stride] = some[lane];
  }
#endif
  for (; i < n; ++i) out[i * stride] = whole_of(mix(keys ^ mix(first + i * stride)), most, unit);
}

void draw(std::uint64_t keys, std::uint64_t first, int bits, double factor, double* out, std::size_t n) {
  const std::uint64_t dropped = bits_dropped(bits);
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const Words d;
  const std::size_t lanes = hn::Lanes(d);
  const auto own = hn::Set(d, keys);
  auto element = hn::Iota(d, first);
  for (; i + lanes <= n; i += lanes, element = hn::Add(element, hn::Set(d, lanes))) hn::StoreU(normals_of(mixed(hn::Xor(own, element)), dropped, factor), Doubles(), out + i);
#endif
  for (; i < n; ++i) out[i] = normal_of(mix(keys ^ (first + i)), dropped, factor);
}

void round_all(double divisor, int bits, double* values, std::size_t n) {
  const int drop = fp64_bits - bits;
  const std::uint64_t dropped = bits_dropped(bits);
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const Words d;
  const Doubles f;
  const std::size_t lanes = hn::Lanes(d);
  const auto half = hn::Set(d, dropped >> 1), gone = hn::Set(d, dropped), one = hn::Set(d, 1);
  for (; i + lanes <= n; i += lanes) {
    const auto word = hn::BitCast(d, hn::Div(hn::LoadU(f, values + i), hn::Set(f, divisor)));
    const auto odd = hn::And(hn::ShiftRightSame(word, drop), one);
    hn::StoreU(hn::BitCast(f, hn::AndNot(gone, hn::Add(word, hn::Add(half, odd)))), f, values + i);
  }
#endif
  for (; i < n; ++i) values[i] = rounded_of(values[i] / divisor, dropped, drop);
}

}  // namespace HWY_NAMESPACE
}  // namespace gradledger::ref
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradledger::ref {

HWY_EXPORT(draw);
HWY_EXPORT(draw_wholes);
HWY_EXPORT(round_all);

void draw_normal(std::uint64_t keys, std::uint64_t first, int bits, double factor, std::span<double> out) {
  HWY_DYNAMIC_DISPATCH(draw)(keys, first, bits, factor, out.data(), out.size());
}

void draw_whole_numbers(std::uint64_t keys, std::uint64_t first, std::uint32_t stride, std::uint32_t most, double unit, std::span<double> out) {
  expects(stride > 0 && most > 0, "whole numbers are drawn for every so many elements, from one on");
  if (!out.empty()) HWY_DYNAMIC_DISPATCH(draw_wholes)(keys, first, stride, most, unit, out.data(), (out.size() - 1) / stride + 1);
}

void divide_and_round(double divisor, int bits, std::span<double> values) {
  if (bits < 53) return HWY_DYNAMIC_DISPATCH(round_all)(divisor, bits, values.data(), values.size());
  for (double& value : values) value = value / divisor;  // of fp64 all bits stay
}

}  // namespace gradledger::ref
#endif  // HWY_ONCE
