// Array kernels that do in one pass what sim/numeric/kernels.h does in several. Each is stated as the passes it replaces; its bits
// are theirs. Preconditions as in kernels.h.
#pragma once

#include "sim/numeric/kernels.h"

namespace gradledger::numeric {

// target[i] = RN(target[i] * factor); *flag = 1 if an element was an infinity or NaN before that, else *flag is left as it was.
void unscale(Dtype dtype, void* target, float factor, std::size_t n, std::uint8_t* flag);

// accumulate; then *flag = 1 if a sum is an infinity or NaN; then *norm = squared_norm of the fp32 values RN(sum * factor), which
// are not stored. With factor 1 that is squared_norm of the target.
void accumulate_with_norm(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, float factor, std::size_t n, double* norm, std::uint8_t* flag);

// Parameter and moments in fp32, the gradient in any gradient dtype, the parameter once more in 16 bits; by either formula of Adam.
struct MixedAdamCall {
  float* parameter = nullptr;
  float* first = nullptr;
  float* second = nullptr;
  Dtype gradient_dtype = Dtype::float32;
  const void* gradient = nullptr;
  Dtype output_dtype = Dtype::bfloat16;
  void* output = nullptr;
  bool cpu_formula = false;
};

// adam_fused or adam_cpu on the fp32 gradients RN(RN(gradient[i] * factor) * coefficient), which are not stored; then output[i] = RN(parameter[i]).
void adam_mixed(const MixedAdamCall& call, float factor, float coefficient, const AdamScalars& s, std::size_t n);

}  // namespace gradledger::numeric
