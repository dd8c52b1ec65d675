// Array kernels of the host executor, over raw storage of a given dtype. Every element is the result of the one rounded
// operation that sim/numeric/scalar.h names; vector width, alignment and length never change a bit.
// Preconditions of all: n elements are readable at each source and writable at each target, aligned to their dtype; a target
// overlaps a source only where address and dtype are the same. Dtypes are float32, bfloat16 or float16 unless said.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sim/numeric/dtype.h"

namespace gradledger::numeric {

// target[i] = RN(source[i]). Also float64 as a source (one rounding from double) and as a target (exact).
void convert(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n);

// target[i] = RN(target[i] + source[i]): both widened exactly to fp32, one add, one rounding into the target's dtype.
// Also float64 += float64, for totals.
void accumulate(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n);

// target[i] = RN(target[i] * factor) and RN(target[i] / divisor), the scalar in fp32: the in-place operations of the frameworks.
void multiply(Dtype dtype, void* target, float factor, std::size_t n);
void divide(Dtype dtype, void* target, float divisor, std::size_t n);

// The first hop of an averaging ring: target[i] = RN(source[i] * s), s = the scalar rounded to the dtype.
void premultiply(Dtype dtype, void* target, const void* source, float scalar, std::size_t n);

// A later hop: target[i] = fma(source[i], s, target[i]), one rounding.
void fused_accumulate(Dtype dtype, void* target, const void* source, float scalar, std::size_t n);

// target[i] = max(target[i], source[i]) of flags; dtype uint8.
void maximum_u8(void* target, const void* source, std::size_t n);

// target[i] = value rounded to the dtype. Also float64 and uint8.
void fill(Dtype dtype, void* target, double value, std::size_t n);

// Whether no element is an infinity or NaN, read off the exponent bits. Also float64.
bool all_finite(Dtype dtype, const void* source, std::size_t n);

// Sum of squares in fp64 over a tree that the data index alone fixes: chunks of 4096 = 256 lanes x 16 strided elements, a lane
// sums in order, then a binary tree over lanes and the same again over chunks. Squares of fp32 values are exact in fp64.
double squared_norm(Dtype dtype, const void* source, std::size_t n);

// ---- base optimizers, fp32 state; formulas and their sources in docs/arithmetic.md -------------------------------------------

struct AdamScalars {
  float learning_rate = 0;
  float beta1 = 0, one_minus_beta1 = 0;
  float beta2 = 0, one_minus_beta2 = 0;
  float epsilon = 0;
  float weight_decay = 0;
  float bias_correction1 = 1;   // 1 - beta1^step
  float bias_correction2 = 1;   // 1 - beta2^step; the CPU formula uses 1/sqrt of it
  bool decoupled_decay = true;  // AdamW; false adds decay to the gradient

  bool operator==(const AdamScalars&) const = default;
};

// PyTorch's SGD: parameter = RN(parameter - lr * RN(gradient + weight_decay * parameter)). Its add() with alpha is a fused multiply-add on processors
// that have one, and on GPUs.
void sgd(float* parameter, const float* gradient, float learning_rate, float weight_decay, std::size_t n);

// The formula of DeepSpeed's FusedAdam (device), without contraction.
void adam_fused(float* parameter, const float* gradient, float* first, float* second, const AdamScalars& s, std::size_t n);

// The formula of DeepSpeed's CPU Adam (optimizer offload), with the fused multiply-adds of its vector body.
void adam_cpu(float* parameter, const float* gradient, float* first, float* second, const AdamScalars& s, std::size_t n);

}  // namespace gradledger::numeric
