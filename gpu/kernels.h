// Device twins of the array kernels of sim/numeric/kernels.h: the same names, the same preconditions, the same bits. Pointers are
// device addresses; work is enqueued on the stream and the call returns. A launch that fails raises DeviceError; an error while
// a kernel runs is raised by the next synchronisation. No result depends on the shape of the grid or on the device.
// Only the payload of an fp64 NaN (accumulate of fp64, squared_norm) is the processor's, here as on the host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "sim/numeric/dtype.h"
#include "sim/numeric/kernels.h"

namespace gradledger::gpu {

void convert(cudaStream_t stream, Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n);
void accumulate(cudaStream_t stream, Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n);
void multiply(cudaStream_t stream, Dtype dtype, void* target, float factor, std::size_t n);
void divide(cudaStream_t stream, Dtype dtype, void* target, float divisor, std::size_t n);
void premultiply(cudaStream_t stream, Dtype dtype, void* target, const void* source, float scalar, std::size_t n);
void fused_accumulate(cudaStream_t stream, Dtype dtype, void* target, const void* source, float scalar, std::size_t n);
void maximum_u8(cudaStream_t stream, void* target, const void* source, std::size_t n);
void fill(cudaStream_t stream, Dtype dtype, void* target, double value, std::size_t n);

// all_finite for a device: *flag = 1 if an element is an infinity or NaN, else *flag is left as it was.
void flag_not_finite(cudaStream_t stream, Dtype dtype, const void* source, std::size_t n, std::uint8_t* flag);

// The workspace holds squared_norm_workspace_bytes(n) and may be null where that is 0; its content is lost.
std::size_t squared_norm_workspace_bytes(std::size_t n);
void squared_norm(cudaStream_t stream, Dtype dtype, const void* source, std::size_t n, double* result, void* workspace);

// target[i] = the correctly rounded square root.
void square_root(cudaStream_t stream, float* target, std::size_t n);

void sgd(cudaStream_t stream, float* parameter, const float* gradient, float learning_rate, float weight_decay, std::size_t n);
void adam_fused(cudaStream_t stream, float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n);
void adam_cpu(cudaStream_t stream, float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n);

}  // namespace gradledger::gpu
