#include "gpu/kernels.h"
#include "gpu/launch.cuh"
#include "gpu/square_root.h"

namespace gradledger::gpu {

void square_root(cudaStream_t stream, float* target, std::size_t n) { Launch{stream, "launch of square_root"}(SquareRoot{target}, n); }

}  // namespace gradledger::gpu
