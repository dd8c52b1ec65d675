// The factors by which the wrappers unscale and clip, each in its own arithmetic.
#pragma once

#include <algorithm>
#include <optional>

namespace gradledger {

// DeepSpeed's guard against division by a zero norm.
inline constexpr float clip_guard = 1e-6f;  // no tolerance: part of the formula

// ZeRO stages 1 to 3 and the fp16 wrappers: 1 / (S x max(1, (norm / S + guard) / clip)), norm being that of scaled gradients, in fp32
// where the norm takes part. Without a norm (no clipping, or a linear run): 1 / S.
inline double unscale_and_clip_factor(double scale, std::optional<double> norm, double clip) {
  if (!norm || clip <= 0) return 1.0 / scale;
  const float ratio = (static_cast<float>(*norm) / static_cast<float>(scale) + clip_guard) / static_cast<float>(clip);
  return 1.0f / (std::max(ratio, 1.0f) * static_cast<float>(scale));
}

// BF16_Optimizer and stage 0 in fp32: clip / (norm + guard) where that is below 1, else none.
inline std::optional<double> clip_coefficient(double norm, double clip) {
  const float coefficient = static_cast<float>(clip) / (static_cast<float>(norm) + clip_guard);
  if (!(coefficient < 1.0f)) return std::nullopt;
  return coefficient;
}

}  // namespace gradledger
