// Array kernels that do in one pass what sim/numeric/kernels.h does in several, and what a step does with a norm. Each is stated
// as the passes it replaces; its bits are theirs. Preconditions as in kernels.h.
#pragma once

#include "sim/numeric/kernels.h"

namespace gradledger::numeric {

// target[i] = RN(target[i] * factor); *flag = 1 if an element was an infinity or NaN before that, else *flag is left as it was.
void unscale(Dtype dtype, void* target, float factor, std::size_t n, std::uint8_t* flag);

// accumulate; then *flag = 1 if a sum is an infinity or NaN; then *norm = squared_norm of the fp32 values RN(sum * factor), which
// are not stored. With factor 1 that is squared_norm of the target.
void accumulate_with_norm(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, float factor, std::size_t n, double* norm,
                          std::uint8_t* flag);

// What multiplies gradients that carry the loss scale, from the squared norm of the scaled ones (ZeRO stages, fp16 wrappers):
// RN(1 / scale) where clip <= 0 or the norm is not finite, else 1 / (scale x max(1, (norm / scale + guard) / clip)) in fp32.
float combined_factor(double squared_norm, double scale, double clip);

// BF16_Optimizer, stage 0: clip / (norm + guard) in fp32 where that is below 1, else 1.
float clip_coefficient(double squared_norm, double clip);

// The guard of both against a norm of zero.
inline constexpr float clip_guard = 1e-6f;  // no tolerance: part of the formulas

// Parameter and moments in fp32, the gradient in any gradient dtype, the parameter once more in 16 bits.
struct MixedAdamArrays {
  float* parameter = nullptr;
  float* first = nullptr;
  float* second = nullptr;
  Dtype gradient_dtype = Dtype::float32;
  const void* gradient = nullptr;
  Dtype output_dtype = Dtype::bfloat16;
  void* output = nullptr;
};

// adam_fused on the fp32 gradients RN(RN(gradient[i] * factor) * coefficient), which are not stored; then output[i] = RN(parameter[i]).
void adam_mixed(const MixedAdamArrays& arrays, float factor, float coefficient, const AdamScalars& s, std::size_t n);

}  // namespace gradledger::numeric
