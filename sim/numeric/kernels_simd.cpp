// The element-wise kernels, compiled once for every instruction set that Highway knows; the best that the machine has is chosen
// at the first call. Nothing else may depend on it: all give the bits of sim/numeric/scalar.h.
#include "sim/numeric/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sim/numeric/kernels_simd.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <bit>
#include <cstring>
#include <type_traits>

#include "sim/base/contract.h"
#include "sim/numeric/dispatch_dtype.h"
#include "sim/numeric/scalar.h"
#include "sim/numeric/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradledger::numeric {
namespace HWY_NAMESPACE {

// ---- element-wise operations: `vector` and `scalar` are the same function of element i ------------------------------------------

template <class T, class S>
struct Convert {
  using Lane = float;
  T* target;
  const S* source;
  template <class D>
  HWY_INLINE auto vector(D d, std::size_t i) const {
    return load_widened(d, source + i);
  }
  HWY_INLINE T scalar(std::size_t i) const { return narrow<T>(widen(source[i])); }
};

template <class T>
struct ConvertFromDouble {
  using Lane = double;
  T* target;
  const double* source;
  template <class D>
  HWY_INLINE auto vector(D d, std::size_t i) const {
    return demote_for<T>(d, hn::LoadU(d, source + i));
  }
  HWY_INLINE T scalar(std::size_t i) const { return narrow_double<T>(source[i]); }
};

template <class S>
struct ConvertToDouble {
  using Lane = double;
  double* target;
  const S* source;
  template <class D>
  HWY_INLINE auto vector(D d, std::size_t i) const {
    return hn::PromoteTo(d, load_widened(d, source + i));
  }
  HWY_INLINE double scalar(std::size_t i) const { return static_cast<double>(widen(source[i])); }
};

template <class T, class S>
struct Accumulate {
  using Lane = float;
  T* target;
  const S* source;
  template <class D>
  HWY_INLINE auto vector(D d, std::size_t i) const {
    return hn::Add(load_widened(d, target + i), load_widened(d, source + i));
  }
  HWY_INLINE T scalar(std::size_t i) const { return narrow<T>(widen(target[i]) + widen(source[i])); }
};

template <class T>
struct Multiply {
  using Lane = float;
  T* target;
  const T* source;
  float factor;
  template <class D>
  HWY_INLINE auto vector(D d, std::size_t i) const {
    return hn::Mul(load_widened(d, source + i), hn::Set(d, factor));
  }
  HWY_INLINE T scalar(std::size_t i) const { return narrow<T>(widen(source[i]) * factor); }
};

template <class T>
struct Divide {
  using Lane = float;
  T* target;
  float divisor;
  template <class D>
  HWY_INLINE auto vector(D d, std::size_t i) const {
    return hn::Div(load_widened(d, target + i), hn::Set(d, divisor));
  }
  HWY_INLINE T scalar(std::size_t i) const { return narrow<T>(widen(target[i]) / divisor); }
};

template <class T>
struct FusedAccumulate {
  static constexpr bool in_one_instruction = std::is_same_v<T, float> && has_fused_multiply_add;
  using Lane = std::conditional_t<in_one_instruction || std::is_same_v<T, Fp16>, float, double>;
  T* target;
  const T* source;
  T scalar_factor;
  template <class D>
  HWY_INLINE auto vector(D d, std::size_t i) const {
    const auto x = load_widened(d, source + i);
    const auto sum = load_widened(d, target + i);
    const auto factor = hn::Set(Floats<D>(), widen(scalar_factor));
    if constexpr (in_one_instruction) return hn::MulAdd(x, factor, sum);
    else return exact_fused<T>(d, x, factor, sum);
  }
  HWY_INLINE T scalar(std::size_t i) const { return fma(source[i], scalar_factor, target[i]); }
};

// ---- the one loop -------------------------------------------------------------------------------------------------------------

// Whole vectors from the front, and one that ends with the last element, computed before anything is stored: where the two
// overlap they store the same bits. Fewer elements than a vector: the same with half the vector, down to four lanes.
template <std::size_t width, class Op>
HWY_INLINE void for_each_element(const Op& op, std::size_t n) {
  if constexpr (HWY_TARGET != HWY_SCALAR) {
    const hn::CappedTag<typename Op::Lane, width> d;
    const std::size_t lanes = hn::Lanes(d);
    if (n >= lanes) {
      const std::size_t last_begin = n - lanes;
      const auto last = op.vector(d, last_begin);
      for (std::size_t i = 0; i < last_begin; i += lanes) store_narrowed(d, op.vector(d, i), op.target + i);
      return store_narrowed(d, last, op.target + last_begin);
    }
    if constexpr (width * sizeof(typename Op::Lane) > 16) return for_each_element<width / 2>(op, n);
  }
  for (std::size_t i = 0; i < n; ++i) op.target[i] = op.scalar(i);
}

template <class Op>
HWY_INLINE void apply(const Op& op, std::size_t n) {
  for_each_element<HWY_LANES(typename Op::Lane)>(op, n);
}

// Whether no exponent is all ones; Integer has the width of T.
template <class T, class Integer, std::size_t width = HWY_LANES(Integer)>
HWY_INLINE bool exponents_below(Integer all_ones, const T* source, std::size_t n) {
  if constexpr (HWY_TARGET != HWY_SCALAR) {
    const hn::CappedTag<Integer, width> d;
    const std::size_t lanes = hn::Lanes(d);
    const auto exponents = [&](std::size_t i) HWY_ATTR { return hn::And(hn::LoadU(d, reinterpret_cast<const Integer*>(source + i)), hn::Set(d, all_ones)); };
    if (n >= lanes) {
      auto largest = exponents(n - lanes);
      for (std::size_t i = 0; i + lanes < n; i += lanes) largest = hn::Max(largest, exponents(i));
      return hn::AllTrue(d, hn::Lt(largest, hn::Set(d, all_ones)));
    }
    if constexpr (width > 4) return exponents_below<T, Integer, width / 2>(all_ones, source, n);
  }
  for (std::size_t i = 0; i < n; ++i)
    if ((std::bit_cast<Integer>(source[i]) & all_ones) == all_ones) return false;
  return true;
}

// ---- entry points -------------------------------------------------------------------------------------------------------------

void convert(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) {
  if (target_dtype == Dtype::float64) {
    return with_dtype(source_dtype, [&](auto s) HWY_ATTR {
      using S = decltype(s);
      apply(ConvertToDouble<S>{static_cast<double*>(target), static_cast<const S*>(source)}, n);
    });
  }
  with_dtype(target_dtype, [&](auto t) HWY_ATTR {
    using T = decltype(t);
    if (source_dtype == Dtype::float64) return apply(ConvertFromDouble<T>{static_cast<T*>(target), static_cast<const double*>(source)}, n);
    with_dtype(source_dtype, [&](auto s) HWY_ATTR {
      using S = decltype(s);
      if constexpr (!std::is_same_v<T, S>) apply(Convert<T, S>{static_cast<T*>(target), static_cast<const S*>(source)}, n);
    });
  });
}

void accumulate(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) {
  with_dtype(target_dtype, [&](auto t) HWY_ATTR {
    using T = decltype(t);
    with_dtype(source_dtype, [&](auto s) HWY_ATTR {
      using S = decltype(s);
      apply(Accumulate<T, S>{static_cast<T*>(target), static_cast<const S*>(source)}, n);
    });
  });
}

void multiply(Dtype dtype, void* target, const void* source, float factor, std::size_t n) {
  with_dtype(dtype, [&](auto t) HWY_ATTR {
    using T = decltype(t);
    apply(Multiply<T>{static_cast<T*>(target), static_cast<const T*>(source), factor}, n);
  });
}

void divide(Dtype dtype, void* target, float divisor, std::size_t n) {
  with_dtype(dtype, [&](auto t) HWY_ATTR {
    using T = decltype(t);
    apply(Divide<T>{static_cast<T*>(target), divisor}, n);
  });
}

void fused_accumulate(Dtype dtype, void* target, const void* source, float scalar, std::size_t n) {
  with_dtype(dtype, [&](auto t) HWY_ATTR {
    using T = decltype(t);
    apply(FusedAccumulate<T>{static_cast<T*>(target), static_cast<const T*>(source), narrow<T>(scalar)}, n);
  });
}

bool all_finite(Dtype dtype, const void* source, std::size_t n) {
  switch (dtype) {
    case Dtype::float32: return exponents_below(std::int32_t{0x7F800000}, static_cast<const float*>(source), n);
    case Dtype::bfloat16: return exponents_below(std::int16_t{0x7F80}, static_cast<const Bf16*>(source), n);
    case Dtype::float16: return exponents_below(std::int16_t{0x7C00}, static_cast<const Fp16*>(source), n);
    case Dtype::float64: return exponents_below(std::int64_t{0x7FF0000000000000}, static_cast<const double*>(source), n);
    default: expects(false, "a kernel was asked for a dtype it does not have");
  }
  return false;
}

}  // namespace HWY_NAMESPACE
}  // namespace gradledger::numeric
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradledger::numeric {

HWY_EXPORT(convert);
HWY_EXPORT(accumulate);
HWY_EXPORT(multiply);
HWY_EXPORT(divide);
HWY_EXPORT(fused_accumulate);
HWY_EXPORT(all_finite);

void convert(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) {
  if (target_dtype != source_dtype) return HWY_DYNAMIC_DISPATCH(convert)(target_dtype, target, source_dtype, source, n);
  if (n != 0 && target != source) std::memcpy(target, source, n * size_of(target_dtype));
}

void accumulate(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) {
  if (target_dtype != Dtype::float64) return HWY_DYNAMIC_DISPATCH(accumulate)(target_dtype, target, source_dtype, source, n);
  expects(source_dtype == Dtype::float64, "fp64 totals take fp64 terms");
  for (std::size_t i = 0; i < n; ++i) static_cast<double*>(target)[i] += static_cast<const double*>(source)[i];
}

void multiply(Dtype dtype, void* target, float factor, std::size_t n) { HWY_DYNAMIC_DISPATCH(multiply)(dtype, target, target, factor, n); }

void divide(Dtype dtype, void* target, float divisor, std::size_t n) { HWY_DYNAMIC_DISPATCH(divide)(dtype, target, divisor, n); }

void premultiply(Dtype dtype, void* target, const void* source, float scalar, std::size_t n) {
  float rounded = scalar;
  with_dtype(dtype, [&](auto t) { rounded = widen(narrow<decltype(t)>(scalar)); });
  HWY_DYNAMIC_DISPATCH(multiply)(dtype, target, source, rounded, n);
}

void fused_accumulate(Dtype dtype, void* target, const void* source, float scalar, std::size_t n) { HWY_DYNAMIC_DISPATCH(fused_accumulate)(dtype, target, source, scalar, n); }

bool all_finite(Dtype dtype, const void* source, std::size_t n) { return HWY_DYNAMIC_DISPATCH(all_finite)(dtype, source, n); }

}  // namespace gradledger::numeric
#endif  // HWY_ONCE
