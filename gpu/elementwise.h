// The element-wise operations that a launch or a replay runs: which arrays, and the one rounded operation of
// sim/numeric/scalar.h that an element undergoes. An operation is a value:
//   width           elements in a pack
//   aligned_at(i)   whether a pack of every array can be read and written at element i
//   fetch<w>(i)     loads elements i .. i+w-1 into registers
//   finish<w>(i, x) computes and stores them; several packs are fetched before the first is finished (run_units)
#pragma once

#include <algorithm>
#include <type_traits>

#include "gpu/pack.h"

namespace gradledger::gpu {

using numeric::Bf16;
using numeric::Fp16;

// target[i] = function(source[i])
template <class T, class S, class Function>
struct Map {
  static constexpr std::size_t width = pack_width<T, S>;
  T* target;
  const S* source;
  Function function;

  bool aligned_at(std::size_t i) const { return is_pack_aligned<width>(target + i) && is_pack_aligned<width>(source + i); }
  template <std::size_t w>
  GRADLEDGER_HD Pack<S, w> fetch(std::size_t i) const {
    return load<w>(source + i);
  }
  template <std::size_t w>
  GRADLEDGER_HD void finish(std::size_t i, const Pack<S, w>& in) const {
    Pack<T, w> out;
    GRADLEDGER_UNROLL
    for (std::size_t k = 0; k < w; ++k) out[k] = function(in[k]);
    store(target + i, out);
  }
};

// target[i] = function(target[i], source[i])
template <class T, class S, class Function>
struct Combine {
  static constexpr std::size_t width = pack_width<T, S>;
  T* target;
  const S* source;
  Function function;

  bool aligned_at(std::size_t i) const { return is_pack_aligned<width>(target + i) && is_pack_aligned<width>(source + i); }
  template <std::size_t w>
  struct Both {
    Pack<T, w> target;
    Pack<S, w> source;
  };
  template <std::size_t w>
  GRADLEDGER_HD Both<w> fetch(std::size_t i) const {
    return {load<w>(static_cast<const T*>(target + i)), load<w>(source + i)};
  }
  template <std::size_t w>
  GRADLEDGER_HD void finish(std::size_t i, const Both<w>& in) const {
    Pack<T, w> out;
    GRADLEDGER_UNROLL
    for (std::size_t k = 0; k < w; ++k) out[k] = function(in.target[k], in.source[k]);
    store(target + i, out);
  }
};

// What is fetched where nothing is read.
struct Nothing {};

// target[i] = value, as bits.
template <class Bits>
struct Fill {
  static constexpr std::size_t width = pack_width<Bits>;
  Bits* target;
  Bits value;

  bool aligned_at(std::size_t i) const { return is_pack_aligned<width>(target + i); }
  template <std::size_t w>
  GRADLEDGER_HD Nothing fetch(std::size_t) const {
    return {};
  }
  template <std::size_t w>
  GRADLEDGER_HD void finish(std::size_t i, Nothing) const {
    Pack<Bits, w> out;
    GRADLEDGER_UNROLL
    for (std::size_t k = 0; k < w; ++k) out[k] = value;
    store(target + i, out);
  }
};

GRADLEDGER_HD inline bool is_finite(float x) { return (numeric::bits_of(x) & 0x7F800000u) != 0x7F800000u; }
GRADLEDGER_HD inline bool is_finite(Bf16 x) { return (x.bits & 0x7F80u) != 0x7F80u; }
GRADLEDGER_HD inline bool is_finite(Fp16 x) { return (x.bits & 0x7C00u) != 0x7C00u; }
GRADLEDGER_HD inline bool is_finite(double x) {
  std::uint64_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return (bits & 0x7FF0000000000000u) != 0x7FF0000000000000u;
}

template <class T, std::size_t w>
GRADLEDGER_HD inline bool all_finite(const Pack<T, w>& in) {
  bool all = true;
  GRADLEDGER_UNROLL
  for (std::size_t k = 0; k < w; ++k) all &= is_finite(in[k]);
  return all;
}

// *flag = 1 if an element is an infinity or NaN; else the flag is left alone. Whoever stores, stores the same byte.
template <class T>
struct FlagNotFinite {
  static constexpr std::size_t width = pack_width<T>;
  const T* source;
  std::uint8_t* flag;

  bool aligned_at(std::size_t i) const { return is_pack_aligned<width>(source + i); }
  template <std::size_t w>
  GRADLEDGER_HD Pack<T, w> fetch(std::size_t i) const {
    return load<w>(source + i);
  }
  template <std::size_t w>
  GRADLEDGER_HD void finish(std::size_t, const Pack<T, w>& in) const {
    if (!all_finite(in)) *flag = 1;
  }
};

// ---- functions of one element -----------------------------------------------------------------------------------------------

// Exact. The payload of a NaN is carried over as the host's processor does, which a conversion on a GPU need not.
GRADLEDGER_HD inline double widen_to_double(float x) {
  if (x == x) return static_cast<double>(x);
  const std::uint64_t from = numeric::bits_of(x);
  const std::uint64_t bits = (from & 0x80000000u) << 32 | 0x7FF8000000000000u | (from & 0x003FFFFFu) << 29;
  double widened;
  memcpy(&widened, &bits, sizeof(widened));
  return widened;
}

template <class T, class S>
struct Converted {
  GRADLEDGER_HD T operator()(S x) const {
    if constexpr (std::is_same_v<S, double>) return numeric::narrow_double<T>(x);
    else if constexpr (std::is_same_v<T, double>) return widen_to_double(numeric::widen(x));
    else return numeric::narrow<T>(numeric::widen(x));
  }
};

// Bits as they are, NaNs included: a copy.
template <class T>
struct Same {
  GRADLEDGER_HD T operator()(T x) const { return x; }
};

template <class T, class S>
struct Sum {
  GRADLEDGER_HD T operator()(T t, S s) const {
    if constexpr (std::is_same_v<T, double>) return t + s;
    else return numeric::narrow<T>(numeric::widen(t) + numeric::widen(s));
  }
};

template <class T>
struct Multiplied {
  float factor;
  GRADLEDGER_HD T operator()(T x) const { return numeric::narrow<T>(numeric::widen(x) * factor); }
};

// The factor lies in device memory: the host need not know it when it launches.
template <class T>
struct MultipliedByStored {
  const float* factor;
  GRADLEDGER_HD T operator()(T x) const { return numeric::narrow<T>(numeric::widen(x) * *factor); }
};

template <class T>
struct Divided {
  float divisor;
  GRADLEDGER_HD T operator()(T x) const { return numeric::narrow<T>(numeric::widen(x) / divisor); }
};

template <class T>
struct FusedSum {
  T factor;
  GRADLEDGER_HD T operator()(T t, T s) const { return numeric::fma(s, factor, t); }
};

struct Larger {
  GRADLEDGER_HD std::uint8_t operator()(std::uint8_t t, std::uint8_t s) const { return t < s ? s : t; }
};

}  // namespace gradledger::gpu
