// A device without a GPU: streams are threads, kernels are replayed on the CPU from the functors that nvcc compiles. Work on different
// streams really runs at the same time, so what no event orders may go wrong here as it does on a GPU.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "gpu/device_api.h"

namespace gradledger::testing {

// What a library in C can know of a stream: how to enqueue a call.
struct StreamHeader {
  void (*enqueue)(void* stream, void (*call)(void*), void* argument);
};

class StandinStream {
 public:
  // Before each call the stream sleeps for up to `jitter` microseconds, by its seed.
  StandinStream(std::uint64_t seed, std::uint32_t jitter);
  ~StandinStream();

  void enqueue(std::function<void()> call);
  void synchronize();

  StreamHeader header;  // first: the address of the stream is that of its header

 private:
  void serve(std::uint64_t seed, std::uint32_t jitter);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> calls_;
  bool busy_ = false, ends_ = false;
  std::thread thread_;
};

class StandinDevice final : public gpu::DeviceApi {
 public:
  explicit StandinDevice(std::uint64_t seed = 0, std::uint32_t jitter = 0) : seed_(seed), jitter_(jitter) {}

  std::string description() const override { return "a stand-in for tests"; }
  void attach_thread() override {}

  std::byte* allocate(std::size_t bytes, MemorySpace space) override;
  void free(std::byte* memory, MemorySpace space) override;
  gpu::StreamHandle make_stream() override;
  void destroy_stream(gpu::StreamHandle stream) override;
  gpu::EventHandle make_event() override;
  void destroy_event(gpu::EventHandle event) override;

  void record(gpu::EventHandle event, gpu::StreamHandle stream) override;
  void wait(gpu::StreamHandle stream, gpu::EventHandle event) override;
  void host_wait(gpu::EventHandle event) override;
  void synchronize(gpu::StreamHandle stream) override;

  void fill_bytes(gpu::StreamHandle stream, void* target, std::byte value, std::size_t bytes) override;
  void copy(gpu::StreamHandle stream, void* target, const void* source, std::size_t bytes) override;
  void upload(gpu::StreamHandle stream, void* target, const void* source, std::size_t bytes) override;
  void download(gpu::StreamHandle stream, void* target, const void* source, std::size_t bytes) override;

  void convert(gpu::StreamHandle stream, Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) override;
  void accumulate(gpu::StreamHandle stream, Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) override;
  void multiply(gpu::StreamHandle stream, Dtype dtype, void* target, float factor, std::size_t n) override;
  void divide(gpu::StreamHandle stream, Dtype dtype, void* target, float divisor, std::size_t n) override;
  void fill(gpu::StreamHandle stream, Dtype dtype, void* target, double value, std::size_t n) override;
  void flag_not_finite(gpu::StreamHandle stream, Dtype dtype, const void* source, std::size_t n, std::uint8_t* flag) override;
  std::size_t squared_norm_workspace_bytes(std::size_t n) const override;
  void squared_norm(gpu::StreamHandle stream, Dtype dtype, const void* source, std::size_t n, double* result, void* workspace) override;
  void square_root(gpu::StreamHandle stream, float* target, std::size_t n) override;
  void sgd(gpu::StreamHandle stream, float* parameter, const float* gradient, float learning_rate, float weight_decay, std::size_t n) override;
  void adam_fused(gpu::StreamHandle stream, float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) override;
  void adam_cpu(gpu::StreamHandle stream, float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) override;

  // From now on one element of every accumulation comes out one bit off, as a kernel's defect would have it.
  static std::atomic<bool>& accumulates_wrongly();

  // Kernels that were enqueued, of all stand-ins of the process: a test that compared nothing must not pass.
  static std::atomic<std::uint64_t>& kernels();

 private:
  void kernel(gpu::StreamHandle stream, std::function<void()> call);

  std::uint64_t seed_;
  std::uint32_t jitter_;
  std::uint64_t streams_ = 0;
};

}  // namespace gradledger::testing
