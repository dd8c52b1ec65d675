#include "gpu/dispatch.h"
#include "gpu/kernels.h"
#include "gpu/launch.cuh"

namespace gradledger::gpu {

void accumulate(cudaStream_t stream, Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) {
  dispatch::accumulate(Launch{stream, "launch of accumulate"}, target_dtype, target, source_dtype, source, n);
}

void fused_accumulate(cudaStream_t stream, Dtype dtype, void* target, const void* source, float scalar, std::size_t n) {
  dispatch::fused_accumulate(Launch{stream, "launch of fused_accumulate"}, dtype, target, source, scalar, n);
}

void maximum_u8(cudaStream_t stream, void* target, const void* source, std::size_t n) { dispatch::maximum_u8(Launch{stream, "launch of maximum_u8"}, target, source, n); }

}  // namespace gradledger::gpu
