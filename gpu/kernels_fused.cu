#include "gpu/fused.h"
#include "gpu/kernels.h"
#include "gpu/launch.cuh"

namespace gradledger::gpu {

void unscale(cudaStream_t stream, Dtype dtype, void* target, float factor, std::size_t n, std::uint8_t* flag) {
  dispatch::unscale(Launch{stream, "launch of unscale"}, dtype, target, factor, n, flag);
}

void multiply_by_stored(cudaStream_t stream, Dtype dtype, void* target, const float* factor, std::size_t n) {
  dispatch::multiply_by_stored(Launch{stream, "launch of multiply_by_stored"}, dtype, target, factor, n);
}

void accumulate_with_norm(cudaStream_t stream, Dtype target_dtype, void* target, Dtype source_dtype, const void* source, float factor, std::size_t n, double* norm,
                          std::uint8_t* flag, void* workspace) {
  dispatch::accumulate_with_norm(LaunchPhased{stream, "launch of accumulate_with_norm"}, target_dtype, target, source_dtype, source, factor, n, norm, flag,
                                 static_cast<double*>(workspace));
}

void combined_factor(cudaStream_t stream, const double* squared_norm, double scale, double clip, float* factor) {
  dispatch::combined_factor(Launch{stream, "launch of combined_factor"}, squared_norm, scale, clip, factor);
}

void clip_coefficient(cudaStream_t stream, const double* squared_norm, double clip, float* coefficient) {
  dispatch::clip_coefficient(Launch{stream, "launch of clip_coefficient"}, squared_norm, clip, coefficient);
}

void adam_mixed(cudaStream_t stream, const numeric::MixedAdamCall& call, float factor, const float* coefficient, const numeric::AdamScalars& s, std::size_t n) {
  dispatch::adam_mixed(Launch{stream, "launch of adam_mixed"}, call, factor, coefficient, s, n);
}

}  // namespace gradledger::gpu
