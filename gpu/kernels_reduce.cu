#include "gpu/dispatch.h"
#include "gpu/kernels.h"
#include "gpu/launch.cuh"

namespace gradledger::gpu {

void flag_not_finite(cudaStream_t stream, Dtype dtype, const void* source, std::size_t n, std::uint8_t* flag) {
  dispatch::flag_not_finite(Launch{stream, "launch of flag_not_finite"}, dtype, source, n, flag);
}

std::size_t squared_norm_workspace_bytes(std::size_t n) { return workspace_numel(n) * sizeof(double); }

void squared_norm(cudaStream_t stream, Dtype dtype, const void* source, std::size_t n, double* result, void* workspace) {
  dispatch::squared_norm(LaunchPhased{stream, "launch of squared_norm"}, dtype, source, n, result, static_cast<double*>(workspace));
}

}  // namespace gradledger::gpu
