// From a kernel's name and dtypes to the operation to run, once for both who run it: run(operation, n) is a launch in
// gpu/kernels_*.cu and a replay on the CPU in tests/gpu. Preconditions and roundings of scalars as in sim/numeric/kernels.h.
#pragma once

#include <bit>

#include "gpu/elementwise.h"
#include "gpu/optimizers.h"
#include "gpu/tree_sum.h"
#include "sim/numeric/dispatch_dtype.h"

namespace gradledger::gpu::dispatch {

using numeric::with_dtype;

// Precondition: the dtypes differ; equal ones are a copy.
template <class Run>
void convert(Run&& run, Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) {
  expects(target_dtype != source_dtype, "a conversion is between two dtypes");
  const auto map = [&](auto t, auto s) {
    using T = decltype(t);
    using S = decltype(s);
    if constexpr (!std::is_same_v<T, S>) run(Map<T, S, Converted<T, S>>{static_cast<T*>(target), static_cast<const S*>(source), {}}, n);
  };
  if (target_dtype == Dtype::float64) return with_dtype(source_dtype, [&](auto s) { map(double{}, s); });
  with_dtype(target_dtype, [&](auto t) {
    if (source_dtype == Dtype::float64) return map(t, double{});
    with_dtype(source_dtype, [&](auto s) { map(t, s); });
  });
}

template <class Run>
void accumulate(Run&& run, Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) {
  const auto combine = [&](auto t, auto s) {
    using T = decltype(t);
    using S = decltype(s);
    run(Combine<T, S, Sum<T, S>>{static_cast<T*>(target), static_cast<const S*>(source), {}}, n);
  };
  if (target_dtype == Dtype::float64) {
    expects(source_dtype == Dtype::float64, "fp64 totals take fp64 terms");
    return combine(double{}, double{});
  }
  with_dtype(target_dtype, [&](auto t) { with_dtype(source_dtype, [&](auto s) { combine(t, s); }); });
}

template <class Run>
void multiply(Run&& run, Dtype dtype, void* target, const void* source, float factor, std::size_t n) {
  with_dtype(dtype, [&](auto t) {
    using T = decltype(t);
    run(Map<T, T, Multiplied<T>>{static_cast<T*>(target), static_cast<const T*>(source), {factor}}, n);
  });
}

template <class Run>
void premultiply(Run&& run, Dtype dtype, void* target, const void* source, float scalar, std::size_t n) {
  float rounded = scalar;
  with_dtype(dtype, [&](auto t) { rounded = numeric::widen(numeric::narrow<decltype(t)>(scalar)); });
  multiply(run, dtype, target, source, rounded, n);
}

template <class Run>
void divide(Run&& run, Dtype dtype, void* target, float divisor, std::size_t n) {
  with_dtype(dtype, [&](auto t) {
    using T = decltype(t);
    run(Map<T, T, Divided<T>>{static_cast<T*>(target), static_cast<const T*>(target), {divisor}}, n);
  });
}

template <class Run>
void fused_accumulate(Run&& run, Dtype dtype, void* target, const void* source, float scalar, std::size_t n) {
  with_dtype(dtype, [&](auto t) {
    using T = decltype(t);
    run(Combine<T, T, FusedSum<T>>{static_cast<T*>(target), static_cast<const T*>(source), {numeric::narrow<T>(scalar)}}, n);
  });
}

template <class Run>
void maximum_u8(Run&& run, void* target, const void* source, std::size_t n) {
  using Byte = std::uint8_t;
  run(Combine<Byte, Byte, Larger>{static_cast<Byte*>(target), static_cast<const Byte*>(source), {}}, n);
}

// The value is rounded here, on the host; the device stores bits.
template <class Run>
void fill(Run&& run, Dtype dtype, void* target, double value, std::size_t n) {
  const auto store_bits = [&](auto bits) { run(Fill<decltype(bits)>{static_cast<decltype(bits)*>(target), bits}, n); };
  switch (dtype) {
    case Dtype::uint8: return store_bits(static_cast<std::uint8_t>(value));
    case Dtype::int32: return store_bits(static_cast<std::uint32_t>(static_cast<std::int32_t>(value)));
    case Dtype::float64: return store_bits(std::bit_cast<std::uint64_t>(value));
    case Dtype::float32: return store_bits(std::bit_cast<std::uint32_t>(numeric::narrow_double<float>(value)));
    case Dtype::bfloat16: return store_bits(numeric::narrow_double<Bf16>(value).bits);
    case Dtype::float16: return store_bits(numeric::narrow_double<Fp16>(value).bits);
  }
}

template <class Run>
void flag_not_finite(Run&& run, Dtype dtype, const void* source, std::size_t n, std::uint8_t* flag) {
  if (dtype == Dtype::float64) return run(FlagNotFinite<double>{static_cast<const double*>(source), flag}, n);
  with_dtype(dtype, [&](auto t) {
    using T = decltype(t);
    run(FlagNotFinite<T>{static_cast<const T*>(source), flag}, n);
  });
}

// run(program, blocks) here: see tree_sum.
template <class Run>
void squared_norm(Run&& run, Dtype dtype, const void* source, std::size_t n, double* result, double* workspace) {
  with_dtype(dtype, [&](auto t) {
    using T = decltype(t);
    tree_sum(run, Squares<T>{static_cast<const T*>(source)}, n, result, workspace);
  });
}

}  // namespace gradledger::gpu::dispatch
