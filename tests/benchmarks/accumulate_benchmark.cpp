// Host accumulation of large buffers as a fraction of what the machine copies: both move three words of memory for two of them named.
#include <benchmark/benchmark.h>

#include <chrono>
#include <functional>
#include <cstring>
#include <vector>

#include "sim/numeric/kernels.h"

namespace gradledger {
namespace {

constexpr std::size_t elements = 32u << 20;

double seconds_of(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Bytes read and written by the accumulation over the time it takes, against the same of a copy of the same buffers, in turns.
void accumulate_over_copy(benchmark::State& state) {
  const auto target_dtype = static_cast<Dtype>(state.range(0)), source_dtype = static_cast<Dtype>(state.range(1));
  std::vector<std::byte> target(elements * size_of(target_dtype)), source(elements * size_of(source_dtype)), other(target.size());
  numeric::fill(target_dtype, target.data(), 1.0, elements);
  numeric::fill(source_dtype, source.data(), 1.0, elements);
  std::memset(other.data(), 0, other.size());
  double accumulate_seconds = 0, copy_seconds = 0;
  for (auto _ : state) {
    const double seconds = seconds_of([&] { numeric::accumulate(target_dtype, target.data(), source_dtype, source.data(), elements); });
    accumulate_seconds += seconds;
    copy_seconds += seconds_of([&] { std::memcpy(other.data(), target.data(), target.size()); });
    benchmark::DoNotOptimize(other.data());
    state.SetIterationTime(seconds);
  }
  const double runs = static_cast<double>(state.iterations());
  const double accumulate_rate = runs * static_cast<double>(2 * target.size() + source.size()) / accumulate_seconds;
  const double copy_rate = runs * static_cast<double>(2 * target.size()) / copy_seconds;
  state.counters["GB/s"] = accumulate_rate / 1e9;
  state.counters["copy GB/s"] = copy_rate / 1e9;
  state.counters["fraction of copy"] = accumulate_rate / copy_rate;
}

constexpr long fp32 = static_cast<long>(Dtype::float32), bf16 = static_cast<long>(Dtype::bfloat16), fp16 = static_cast<long>(Dtype::float16);
BENCHMARK(accumulate_over_copy)
    ->ArgNames({"target", "source"})
    ->Args({fp32, fp32})
    ->Args({fp32, bf16})
    ->Args({bf16, bf16})
    ->Args({fp16, fp16})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace gradledger
