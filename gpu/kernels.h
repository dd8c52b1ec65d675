// Device twins of the array kernels of sim/numeric/{kernels,fused,difference}.h: the same names, the same preconditions, the same bits. Pointers are
// device addresses; work is enqueued on the stream and the call returns. A launch that fails raises DeviceError; an error while
// a kernel runs is raised by the next synchronisation. No result depends on the shape of the grid or on the device.
// Only the payload of an fp64 NaN (accumulate of fp64, squared_norm) is the processor's, here as on the host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "gpu/copies.h"
#include "sim/numeric/difference.h"
#include "sim/numeric/dtype.h"
#include "sim/numeric/fused.h"
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

// ---- several passes in one: sim/numeric/fused.h. Scalars that depend on a norm stay on the device. -----------------------------

void unscale(cudaStream_t stream, Dtype dtype, void* target, float factor, std::size_t n, std::uint8_t* flag);

// multiply by a factor in device memory.
void multiply_by_stored(cudaStream_t stream, Dtype dtype, void* target, const float* factor, std::size_t n);

// The workspace as of squared_norm.
void accumulate_with_norm(cudaStream_t stream, Dtype target_dtype, void* target, Dtype source_dtype, const void* source, float factor, std::size_t n, double* norm,
                          std::uint8_t* flag, void* workspace);
void combined_factor(cudaStream_t stream, const double* squared_norm, double scale, double clip, float* factor);
void clip_coefficient(cudaStream_t stream, const double* squared_norm, double clip, float* coefficient);
void adam_mixed(cudaStream_t stream, const numeric::MixedAdamCall& call, float factor, const float* coefficient, const numeric::AdamScalars& s, std::size_t n);

// ---- buckets -----------------------------------------------------------------------------------------------------------------

// The tensors, one after the other, to the flat buffer, and back: convert of each, in few launches (127 tensors each).
// The span lies in host memory and is not used after the call.
void flatten(cudaStream_t stream, Dtype flat_dtype, void* flat, Dtype tensor_dtype, std::span<const BucketTensor> tensors);
void unflatten(cudaStream_t stream, Dtype tensor_dtype, std::span<const BucketTensor> tensors, Dtype flat_dtype, const void* flat);

// ---- comparison: sim/numeric/difference.h --------------------------------------------------------------------------------------

// result lies in device memory and is overwritten; bounds may be null.
void difference(cudaStream_t stream, Dtype dtype, const void* a, const void* b, const float* bounds, std::size_t n, numeric::Difference* result);

}  // namespace gradledger::gpu
