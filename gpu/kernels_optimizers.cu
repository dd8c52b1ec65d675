#include "gpu/kernels.h"
#include "gpu/launch.cuh"
#include "gpu/optimizers.h"

namespace gradledger::gpu {

void sgd(cudaStream_t stream, float* parameter, const float* gradient, float learning_rate, float weight_decay, std::size_t n) {
  Launch{stream, "launch of sgd"}(Sgd{parameter, gradient, learning_rate, weight_decay}, n);
}

void adam_fused(cudaStream_t stream, float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) {
  Launch{stream, "launch of adam_fused"}(Adam<FusedAdamFormula>{parameter, gradient, first, second, {s}}, n);
}

void adam_cpu(cudaStream_t stream, float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) {
  Launch{stream, "launch of adam_cpu"}(Adam<CpuAdamFormula>{parameter, gradient, first, second, CpuAdamFormula(s)}, n);
}

}  // namespace gradledger::gpu
