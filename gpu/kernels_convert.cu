#include "gpu/dispatch.h"
#include "gpu/kernels.h"
#include "gpu/launch.cuh"

namespace gradledger::gpu {

void convert(cudaStream_t stream, Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) {
  if (target_dtype != source_dtype) return dispatch::convert(Launch{stream, "launch of convert"}, target_dtype, target, source_dtype, source, n);
  if (n != 0 && target != source) check(cudaMemcpyAsync(target, source, n * size_of(target_dtype), cudaMemcpyDeviceToDevice, stream), "copy on the device");
}

}  // namespace gradledger::gpu
