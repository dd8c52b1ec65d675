#include "gpu/copies.h"
#include "gpu/kernels.h"
#include "gpu/launch.cuh"

namespace gradledger::gpu {

void flatten(cudaStream_t stream, Dtype flat_dtype, void* flat, Dtype tensor_dtype, std::span<const BucketTensor> tensors) {
  dispatch::flatten(LaunchPhased{stream, "launch of flatten"}, flat_dtype, flat, tensor_dtype, tensors);
}

void unflatten(cudaStream_t stream, Dtype tensor_dtype, std::span<const BucketTensor> tensors, Dtype flat_dtype, const void* flat) {
  dispatch::unflatten(LaunchPhased{stream, "launch of unflatten"}, tensor_dtype, tensors, flat_dtype, flat);
}

}  // namespace gradledger::gpu
