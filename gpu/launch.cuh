// The only __global__ functions: index arithmetic and barriers over what the headers state.
#pragma once

#include <limits>

#include "gpu/device.h"
#include "gpu/pack.h"

namespace gradledger::gpu {

template <class Operation>
__global__ void __launch_bounds__(threads_per_block) elementwise_kernel(const __grid_constant__ Operation operation, const Packing packing) {
  run_units(operation, packing, {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x});
}

template <class Program>
__global__ void __launch_bounds__(Program::threads) phased_kernel(const __grid_constant__ Program program) {
  __shared__ typename Program::Shared shared;
  for (unsigned phase = 0; phase < Program::phases; ++phase) {
    program.run(phase, blockIdx.x, threadIdx.x, shared);
    __syncthreads();
  }
}

// run(operation, n) of gpu/dispatch.h, on a stream; `what` names the kernel in errors.
struct Launch {
  cudaStream_t stream;
  const char* what;

  template <class Operation>
  void operator()(const Operation& operation, std::size_t n) const {
    if (n == 0) return;
    const Packing packing = packing_of(operation, n);
    const LaunchShape shape = launch_shape(packing.units);
    elementwise_kernel<<<shape.blocks, shape.threads, 0, stream>>>(operation, packing);
    check(cudaGetLastError(), what);
  }
};

// run(program, blocks) of gpu/tree_sum.h.
struct LaunchPhased {
  cudaStream_t stream;
  const char* what;

  template <class Program>
  void operator()(const Program& program, std::size_t blocks) const {
    if (blocks == 0) return;
    expects(blocks <= static_cast<std::size_t>(std::numeric_limits<int>::max()), "a grid has fewer than 2^31 blocks");
    phased_kernel<<<static_cast<unsigned>(blocks), Program::threads, 0, stream>>>(program);
    check(cudaGetLastError(), what);
  }
};

}  // namespace gradledger::gpu
