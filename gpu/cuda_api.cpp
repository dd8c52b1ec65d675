#include "gpu/cuda_api.h"

#include <algorithm>
#include <thread>

#include "gpu/device.h"
#include "gpu/kernels.h"

namespace gradledger::gpu {
namespace {

cudaStream_t cuda(StreamHandle stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t cuda_event(EventHandle event) { return static_cast<cudaEvent_t>(event); }

class CudaApi final : public DeviceApi {
 public:
  CudaApi(int device, std::chrono::milliseconds deadline) : device_(device), deadline_(deadline) {
    check(cudaSetDevice(device_), "choice of the device");
    const auto found = find_device();
    if (!found) throw std::runtime_error(found.error().text());
    description_ = found->text();
  }

  std::string description() const override { return description_; }
  void attach_thread() override { check(cudaSetDevice(device_), "choice of the device"); }

  // ---- memory, streams, events --------------------------------------------------------------------------------------------------------

  std::byte* allocate(std::size_t bytes, MemorySpace space) override {
    void* memory = nullptr;
    if (space == MemorySpace::device) check(cudaMalloc(&memory, bytes), "allocation of device memory");
    else check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped), "allocation of pinned memory");
    return static_cast<std::byte*>(memory);
  }
  void free(std::byte* memory, MemorySpace space) override {
    if (hangs_) return;  // it would wait for what does not end
    static_cast<void>(space == MemorySpace::device ? cudaFree(memory) : cudaFreeHost(memory));
  }
  StreamHandle make_stream() override {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creation of a stream");
    return stream;
  }
  void destroy_stream(StreamHandle stream) override { static_cast<void>(cudaStreamDestroy(cuda(stream))); }
  EventHandle make_event() override {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creation of an event");
    return event;
  }
  void destroy_event(EventHandle event) override { static_cast<void>(cudaEventDestroy(cuda_event(event))); }

  // ---- order ----------------------------------------------------------------------------------------------------------------------------

  void record(EventHandle event, StreamHandle stream) override { check(cudaEventRecord(cuda_event(event), cuda(stream)), "record of an event"); }
  void wait(StreamHandle stream, EventHandle event) override { check(cudaStreamWaitEvent(cuda(stream), cuda_event(event), 0), "wait of a stream"); }
  void host_wait(EventHandle event) override {
    until_ready([&] { return cudaEventQuery(cuda_event(event)); }, "an event");
  }
  void synchronize(StreamHandle stream) override {
    until_ready([&] { return cudaStreamQuery(cuda(stream)); }, "a stream");
  }

  void fill_bytes(StreamHandle stream, void* target, std::byte value, std::size_t bytes) override {
    check(cudaMemsetAsync(target, std::to_integer<int>(value), bytes, cuda(stream)), "filling of memory");
  }
  void copy(StreamHandle stream, void* target, const void* source, std::size_t bytes) override {
    if (bytes > 0 && target != source) check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, cuda(stream)), "copy on the device");
  }
  // From pageable memory the runtime has taken the bytes when it returns.
  void upload(StreamHandle stream, void* target, const void* source, std::size_t bytes) override { copy(stream, target, source, bytes); }
  void download(StreamHandle stream, void* target, const void* source, std::size_t bytes) override {
    copy(stream, target, source, bytes);
    synchronize(stream);
  }

  // ---- kernels --------------------------------------------------------------------------------------------------------------------------

  void convert(StreamHandle stream, Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) override {
    gpu::convert(cuda(stream), target_dtype, target, source_dtype, source, n);
  }
  void accumulate(StreamHandle stream, Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) override {
    gpu::accumulate(cuda(stream), target_dtype, target, source_dtype, source, n);
  }
  void multiply(StreamHandle stream, Dtype dtype, void* target, float factor, std::size_t n) override { gpu::multiply(cuda(stream), dtype, target, factor, n); }
  void divide(StreamHandle stream, Dtype dtype, void* target, float divisor, std::size_t n) override { gpu::divide(cuda(stream), dtype, target, divisor, n); }
  void fill(StreamHandle stream, Dtype dtype, void* target, double value, std::size_t n) override { gpu::fill(cuda(stream), dtype, target, value, n); }
  void flag_not_finite(StreamHandle stream, Dtype dtype, const void* source, std::size_t n, std::uint8_t* flag) override {
    gpu::flag_not_finite(cuda(stream), dtype, source, n, flag);
  }
  std::size_t squared_norm_workspace_bytes(std::size_t n) const override { return gpu::squared_norm_workspace_bytes(n); }
  void squared_norm(StreamHandle stream, Dtype dtype, const void* source, std::size_t n, double* result, void* workspace) override {
    gpu::squared_norm(cuda(stream), dtype, source, n, result, workspace);
  }
  void square_root(StreamHandle stream, float* target, std::size_t n) override { gpu::square_root(cuda(stream), target, n); }
  void sgd(StreamHandle stream, float* parameter, const float* gradient, float learning_rate, float weight_decay, std::size_t n) override {
    gpu::sgd(cuda(stream), parameter, gradient, learning_rate, weight_decay, n);
  }
  void adam_fused(StreamHandle stream, float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) override {
    gpu::adam_fused(cuda(stream), parameter, gradient, first, second, s, n);
  }
  void adam_cpu(StreamHandle stream, float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) override {
    gpu::adam_cpu(cuda(stream), parameter, gradient, first, second, s, n);
  }

 private:
  // The first milliseconds without sleep: most waits are shorter.
  template <class Query>
  void until_ready(Query&& query, const char* what) {
    if (hangs_) throw std::runtime_error("the device did not end an earlier call");
    const auto begin = std::chrono::steady_clock::now();
    while (true) {
      const cudaError_t state = query();
      if (state == cudaSuccess) return;
      if (state != cudaErrorNotReady) check(state, "work on the device");
      const auto waited = std::chrono::steady_clock::now() - begin;
      if (waited > deadline_) {
        hangs_ = true;
        throw std::runtime_error(std::string(what) + " of the device was not ready within " + std::to_string(deadline_.count()) + " ms: a collective hangs");
      }
      if (waited > std::chrono::milliseconds(2)) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  int device_;
  std::chrono::milliseconds deadline_;
  std::string description_;
  bool hangs_ = false;
};

}  // namespace

Result<int> count_devices() {
  if (const auto found = find_device(); !found) return found.error();
  int count = 0;
  check(cudaGetDeviceCount(&count), "count of the devices");
  return count;
}

std::unique_ptr<DeviceApi> make_cuda_api(std::uint32_t rank, std::chrono::milliseconds deadline) {
  const auto count = count_devices();
  if (!count) throw std::runtime_error(count.error().text());
  return std::make_unique<CudaApi>(static_cast<int>(rank) % *count, deadline);
}

}  // namespace gradledger::gpu
