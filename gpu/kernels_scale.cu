#include "gpu/dispatch.h"
#include "gpu/kernels.h"
#include "gpu/launch.cuh"

namespace gradledger::gpu {

void multiply(cudaStream_t stream, Dtype dtype, void* target, float factor, std::size_t n) {
  dispatch::multiply(Launch{stream, "launch of multiply"}, dtype, target, target, factor, n);
}

void divide(cudaStream_t stream, Dtype dtype, void* target, float divisor, std::size_t n) { dispatch::divide(Launch{stream, "launch of divide"}, dtype, target, divisor, n); }

void premultiply(cudaStream_t stream, Dtype dtype, void* target, const void* source, float scalar, std::size_t n) {
  dispatch::premultiply(Launch{stream, "launch of premultiply"}, dtype, target, source, scalar, n);
}

void fill(cudaStream_t stream, Dtype dtype, void* target, double value, std::size_t n) { dispatch::fill(Launch{stream, "launch of fill"}, dtype, target, value, n); }

}  // namespace gradledger::gpu
