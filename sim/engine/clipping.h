// The factors by which the wrappers unscale and clip, each in its own arithmetic.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>

#include "sim/numeric/dispatch_dtype.h"

namespace gradledger {

// DeepSpeed's guard against division by a zero norm.
inline constexpr double clip_guard = 1e-6;  // no tolerance: part of the formula

// ZeRO stages 1 to 3 and the fp16 wrappers: 1 / (S x max(1, (norm / S + guard) / clip)), norm being that of scaled gradients, in the norm's
// dtype where it takes part. Without a norm (no clipping, or a linear run): 1 / S. A norm that is not finite is masked by -1, of which the norm
// over all groups makes 1; before DeepSpeed#7171 infinity x 0 made it NaN, and the factor with it; from 0.19.8 on it stays infinite, and the factor is 0.
enum class NormAs : std::uint8_t { not_a_number, one, infinity };

template <std::floating_point Real = float>
double unscale_and_clip_factor(double scale, std::optional<double> norm, double clip, NormAs invalid = NormAs::one) {
  using limits = std::numeric_limits<double>;
  if (!norm || clip <= 0) return 1.0 / scale;
  if (!std::isfinite(*norm)) norm = invalid == NormAs::one ? 1.0 : invalid == NormAs::infinity ? limits::infinity() : limits::quiet_NaN();
  const Real ratio = (static_cast<Real>(*norm) / static_cast<Real>(scale) + static_cast<Real>(clip_guard)) / static_cast<Real>(clip);
  return Real{1} / (std::max(ratio, Real{1}) * static_cast<Real>(scale));
}

// What a scalar of the dtype makes of a number.
inline float rounded_to(Dtype dtype, float x) {
  float out = x;
  numeric::with_dtype(dtype, [&](auto t) { out = numeric::widen(numeric::narrow<decltype(t)>(x)); });
  return out;
}

// A loop's clip_grad_norm_, in the dtype of the norm: Python divides a number by a tensor as the tensor's reciprocal times the number, and each operation
// rounds. clamp leaves NaN as it is.
inline float loop_clip_factor(double norm, double max_norm, Dtype dtype = Dtype::float32) {
  const float guarded = rounded_to(dtype, static_cast<float>(norm) + static_cast<float>(clip_guard));
  const float factor = rounded_to(dtype, rounded_to(dtype, 1.0f / guarded) * static_cast<float>(max_norm));
  return factor > 1.0f ? 1.0f : factor;
}

// BF16_Optimizer: clip / (norm + guard) where that is below 1, else none.
inline std::optional<double> clip_coefficient(double norm, double clip) {
  const float coefficient = static_cast<float>(clip) / (static_cast<float>(norm) + static_cast<float>(clip_guard));
  if (!(coefficient < 1.0f)) return std::nullopt;
  return coefficient;
}

// Stage 0 in fp32: min(1, clip / (norm + guard)), NaN where the norm is; before DeepSpeed#5150 the maximum of the two.
inline std::optional<double> fp32_clip_coefficient(double norm, double clip, bool at_most_one) {
  const float coefficient = static_cast<float>(clip) / (static_cast<float>(norm) + static_cast<float>(clip_guard));
  if (at_most_one ? coefficient >= 1.0f : coefficient <= 1.0f) return std::nullopt;
  return coefficient;
}

}  // namespace gradledger
