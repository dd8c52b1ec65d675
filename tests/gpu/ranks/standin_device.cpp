#include "tests/gpu/ranks/standin_device.h"

#include <chrono>
#include <cstring>
#include <new>
#include <vector>

#include "gpu/dispatch.h"
#include "gpu/square_root.h"
#include "sim/base/hash.h"
#include "tests/gpu/twins/replay.h"

namespace gradledger::testing {
namespace {

constexpr std::align_val_t alignment{256};

StandinStream& stream_of(gpu::StreamHandle handle) { return *static_cast<StandinStream*>(handle); }

// Records are numbered; an event has passed when the last one has.
struct StandinEvent {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded = 0, passed = 0;

  std::uint64_t latest() {
    const std::lock_guard lock(mutex);
    return recorded;
  }
  void pass(std::uint64_t record) {
    {
      const std::lock_guard lock(mutex);
      passed = std::max(passed, record);
    }
    changed.notify_all();
  }
  void wait(std::uint64_t record) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return passed >= record; });
  }
};

StandinEvent& event_of(gpu::EventHandle handle) { return *static_cast<StandinEvent*>(handle); }

}  // namespace

StandinStream::StandinStream(std::uint64_t seed, std::uint32_t jitter)
    : header{[](void* stream, void (*call)(void*), void* argument) { static_cast<StandinStream*>(stream)->enqueue([=] { call(argument); }); }},
      thread_([this, seed, jitter] { serve(seed, jitter); }) {}

StandinStream::~StandinStream() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StandinStream::enqueue(std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
  }
  changed_.notify_all();
}

void StandinStream::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return calls_.empty() && !busy_; });
}

void StandinStream::serve(std::uint64_t seed, std::uint32_t jitter) {
  SplitMix64 random(seed);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !calls_.empty() || ends_; });
    if (calls_.empty()) return;
    const std::function<void()> call = std::move(calls_.front());
    calls_.pop_front();
    busy_ = true;
    lock.unlock();
    if (jitter > 0) std::this_thread::sleep_for(std::chrono::microseconds(random.below(jitter)));
    call();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

std::atomic<std::uint64_t>& StandinDevice::kernels() {
  static std::atomic<std::uint64_t> count{0};
  return count;
}

std::atomic<bool>& StandinDevice::accumulates_wrongly() {
  static std::atomic<bool> wrong{false};
  return wrong;
}

// Rubbish that is neither poison nor zero.
std::byte* StandinDevice::allocate(std::size_t bytes, MemorySpace) {
  auto* memory = static_cast<std::byte*>(::operator new(bytes, alignment));
  std::memset(memory, 0x5A, bytes);
  return memory;
}

void StandinDevice::free(std::byte* memory, MemorySpace) { ::operator delete(memory, alignment); }

gpu::StreamHandle StandinDevice::make_stream() { return new StandinStream(seed_ * 31 + streams_++, jitter_); }
void StandinDevice::destroy_stream(gpu::StreamHandle stream) { delete &stream_of(stream); }
gpu::EventHandle StandinDevice::make_event() { return new StandinEvent; }
void StandinDevice::destroy_event(gpu::EventHandle event) { delete &event_of(event); }

void StandinDevice::record(gpu::EventHandle event, gpu::StreamHandle stream) {
  StandinEvent& e = event_of(event);
  std::uint64_t record = 0;
  {
    const std::lock_guard lock(e.mutex);
    record = ++e.recorded;
  }
  stream_of(stream).enqueue([&e, record] { e.pass(record); });
}

void StandinDevice::wait(gpu::StreamHandle stream, gpu::EventHandle event) {
  StandinEvent& e = event_of(event);
  stream_of(stream).enqueue([&e, record = e.latest()] { e.wait(record); });
}

void StandinDevice::host_wait(gpu::EventHandle event) { event_of(event).wait(event_of(event).latest()); }
void StandinDevice::synchronize(gpu::StreamHandle stream) { stream_of(stream).synchronize(); }

void StandinDevice::fill_bytes(gpu::StreamHandle stream, void* target, std::byte value, std::size_t bytes) {
  stream_of(stream).enqueue([=] { std::memset(target, std::to_integer<int>(value), bytes); });
}

void StandinDevice::copy(gpu::StreamHandle stream, void* target, const void* source, std::size_t bytes) {
  stream_of(stream).enqueue([=] { std::memmove(target, source, bytes); });
}

void StandinDevice::upload(gpu::StreamHandle stream, void* target, const void* source, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(source);
  stream_of(stream).enqueue([target, held = std::vector<std::byte>(begin, begin + bytes)] { std::memcpy(target, held.data(), held.size()); });
}

void StandinDevice::download(gpu::StreamHandle stream, void* target, const void* source, std::size_t bytes) {
  copy(stream, target, source, bytes);
  synchronize(stream);
}

// ---- kernels --------------------------------------------------------------------------------------------------------------------------

void StandinDevice::kernel(gpu::StreamHandle stream, std::function<void()> call) {
  ++kernels();
  stream_of(stream).enqueue(std::move(call));
}

void StandinDevice::convert(gpu::StreamHandle stream, Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) {
  if (target_dtype == source_dtype) return copy(stream, target, source, n * size_of(target_dtype));
  kernel(stream, [=] { gpu::dispatch::convert(Replay{}, target_dtype, target, source_dtype, source, n); });
}
void StandinDevice::accumulate(gpu::StreamHandle stream, Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) {
  kernel(stream, [=] {
    gpu::dispatch::accumulate(Replay{}, target_dtype, target, source_dtype, source, n);
    if (accumulates_wrongly() && n > 0 && target_dtype != Dtype::float64) static_cast<std::byte*>(target)[size_of(target_dtype) * (n / 2)] ^= std::byte{1};
  });
}
void StandinDevice::multiply(gpu::StreamHandle stream, Dtype dtype, void* target, float factor, std::size_t n) {
  kernel(stream, [=] { gpu::dispatch::multiply(Replay{}, dtype, target, target, factor, n); });
}
void StandinDevice::divide(gpu::StreamHandle stream, Dtype dtype, void* target, float divisor, std::size_t n) {
  kernel(stream, [=] { gpu::dispatch::divide(Replay{}, dtype, target, divisor, n); });
}
void StandinDevice::fill(gpu::StreamHandle stream, Dtype dtype, void* target, double value, std::size_t n) {
  kernel(stream, [=] { gpu::dispatch::fill(Replay{}, dtype, target, value, n); });
}
void StandinDevice::flag_not_finite(gpu::StreamHandle stream, Dtype dtype, const void* source, std::size_t n, std::uint8_t* flag) {
  kernel(stream, [=] { gpu::dispatch::flag_not_finite(Replay{}, dtype, source, n, flag); });
}
std::size_t StandinDevice::squared_norm_workspace_bytes(std::size_t n) const { return gpu::workspace_numel(n) * sizeof(double); }
void StandinDevice::squared_norm(gpu::StreamHandle stream, Dtype dtype, const void* source, std::size_t n, double* result, void* workspace) {
  kernel(stream, [=] { gpu::dispatch::squared_norm(ReplayPhased{}, dtype, source, n, result, static_cast<double*>(workspace)); });
}
void StandinDevice::square_root(gpu::StreamHandle stream, float* target, std::size_t n) {
  kernel(stream, [=] { Replay{}(gpu::SquareRoot{target}, n); });
}
void StandinDevice::sgd(gpu::StreamHandle stream, float* parameter, const float* gradient, float learning_rate, float weight_decay, std::size_t n) {
  kernel(stream, [=] { Replay{}(gpu::Sgd{parameter, gradient, learning_rate, weight_decay}, n); });
}
void StandinDevice::adam_fused(gpu::StreamHandle stream, float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) {
  kernel(stream, [=] { Replay{}(gpu::Adam<gpu::FusedAdamFormula>{parameter, gradient, first, second, {s}}, n); });
}
void StandinDevice::adam_cpu(gpu::StreamHandle stream, float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) {
  kernel(stream, [=] { Replay{}(gpu::Adam<gpu::CpuAdamFormula>{parameter, gradient, first, second, gpu::CpuAdamFormula(s)}, n); });
}

}  // namespace gradledger::testing
