#include "gpu/difference.h"
#include "gpu/kernels.h"
#include "gpu/launch.cuh"

namespace gradledger::gpu {

void difference(cudaStream_t stream, Dtype dtype, const void* a, const void* b, const float* bounds, std::size_t n, numeric::Difference* result) {
  constexpr const char* what = "launch of difference";
  dispatch::difference(Launch{stream, what}, LaunchPhased{stream, what}, dtype, a, b, bounds, n, result);
}

}  // namespace gradledger::gpu
