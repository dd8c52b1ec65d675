// What a rank needs of a GPU: memory, streams, events and the array kernels. CUDA behind it (gpu/cuda_api), or what tests stand in for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "sim/numeric/dtype.h"
#include "sim/numeric/kernels.h"
#include "sim/trace/observation.h"

namespace gradledger::gpu {

using StreamHandle = void*;  // a cudaStream_t
using EventHandle = void*;

// Calls enqueue on the stream and return, unless said. Memory of either space is reachable from kernels and copies. A call that fails
// throws std::runtime_error with what was attempted; a kernel that fails does so at a later call.
class DeviceApi {
 public:
  virtual ~DeviceApi() = default;

  virtual std::string description() const = 0;
  // Of the calling thread, before it makes another call.
  virtual void attach_thread() = 0;

  virtual std::byte* allocate(std::size_t bytes, MemorySpace space) = 0;  // host: pinned; aligned to 256 bytes
  virtual void free(std::byte* memory, MemorySpace space) = 0;            // what uses it is over
  virtual StreamHandle make_stream() = 0;
  virtual void destroy_stream(StreamHandle stream) = 0;
  virtual EventHandle make_event() = 0;
  virtual void destroy_event(EventHandle event) = 0;

  virtual void record(EventHandle event, StreamHandle stream) = 0;
  virtual void wait(StreamHandle stream, EventHandle event) = 0;
  virtual void host_wait(EventHandle event) = 0;      // returns when the event has passed
  virtual void synchronize(StreamHandle stream) = 0;  // returns when the stream is done

  virtual void fill_bytes(StreamHandle stream, void* target, std::byte value, std::size_t bytes) = 0;
  virtual void copy(StreamHandle stream, void* target, const void* source, std::size_t bytes) = 0;
  // From memory of the process that is not pinned; the source may be changed when the call returns.
  virtual void upload(StreamHandle stream, void* target, const void* source, std::size_t bytes) = 0;
  // Into memory of the process; returns when the bytes are there.
  virtual void download(StreamHandle stream, void* target, const void* source, std::size_t bytes) = 0;

  // ---- array kernels: sim/numeric/kernels.h; 0 elements are nothing ---------------------------------------------------------------
  virtual void convert(StreamHandle stream, Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) = 0;
  virtual void accumulate(StreamHandle stream, Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) = 0;
  virtual void multiply(StreamHandle stream, Dtype dtype, void* target, float factor, std::size_t n) = 0;
  virtual void divide(StreamHandle stream, Dtype dtype, void* target, float divisor, std::size_t n) = 0;
  virtual void fill(StreamHandle stream, Dtype dtype, void* target, double value, std::size_t n) = 0;
  virtual void flag_not_finite(StreamHandle stream, Dtype dtype, const void* source, std::size_t n, std::uint8_t* flag) = 0;
  virtual std::size_t squared_norm_workspace_bytes(std::size_t n) const = 0;
  virtual void squared_norm(StreamHandle stream, Dtype dtype, const void* source, std::size_t n, double* result, void* workspace) = 0;
  virtual void square_root(StreamHandle stream, float* target, std::size_t n) = 0;
  virtual void sgd(StreamHandle stream, float* parameter, const float* gradient, float learning_rate, float weight_decay, std::size_t n) = 0;
  virtual void adam_fused(StreamHandle stream, float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) = 0;
  virtual void adam_cpu(StreamHandle stream, float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) = 0;
};

}  // namespace gradledger::gpu
