// Speed of the device kernels beside that of a copy on the device, over arrays that no cache holds.
// usage: gpu_benchmarks [--json FILE]
// exit: 0 measured, 1 nothing was measured or a time makes no sense, 2 usage, 3 a CUDA call failed, 4 no GPU
#include <cstring>
#include <functional>

#include "gpu/kernels.h"
#include "tests/gpu/device/measure.h"

namespace gradledger::testing {
namespace {

constexpr std::size_t n = std::size_t{1} << 27;  // 512 MiB of fp32, 256 MiB of 16 bits
constexpr std::size_t repetitions = 11;
constexpr std::size_t bucket_tensors = 300;

// Everything that the kernels work on; the arrays of fp32 start equal. Values are ordinary: power, and with it the clock, depends on them.
struct Arrays {
  gpu::Stream stream;
  gpu::DeviceMemory parameter{n * 4}, gradient{n * 4}, first{n * 4}, second{n * 4}, accumulator{n * 4};
  gpu::DeviceMemory small{n * 2}, output{n * 2};
  gpu::DeviceMemory workspace{gpu::squared_norm_workspace_bytes(n)};
  gpu::DeviceMemory scalars{256};

  Arrays() {
    std::vector<float> values(std::size_t{1} << 22);
    std::uint32_t state = 1;
    for (float& x : values) {
      state = state * 1664525u + 1013904223u;
      x = 0.25f + static_cast<float>(state >> 9) * 0x1p-24f;
    }
    for (const gpu::DeviceMemory* memory : {&parameter, &gradient, &first, &second, &accumulator})
      for (std::size_t at = 0; at < n; at += values.size())
        gpu::check(cudaMemcpyAsync(memory->data() + at * 4, values.data(), values.size() * 4, cudaMemcpyHostToDevice, stream.handle()), "copy to the device");
    gpu::convert(s(), Dtype::bfloat16, small.data(), Dtype::float32, gradient.data(), n);
    gpu::fill(s(), Dtype::float32, scalars.data(), 1.0, scalars.bytes() / 4);
    stream.synchronize();
  }

  cudaStream_t s() const { return stream.handle(); }
  float* p() const { return reinterpret_cast<float*>(parameter.data()); }
  float* g() const { return reinterpret_cast<float*>(gradient.data()); }
  float* m() const { return reinterpret_cast<float*>(first.data()); }
  float* v() const { return reinterpret_cast<float*>(second.data()); }
  float* coefficient() const { return reinterpret_cast<float*>(scalars.data()); }
  double* norm() const { return reinterpret_cast<double*>(scalars.data() + 64); }
  std::uint8_t* flag() const { return reinterpret_cast<std::uint8_t*>(scalars.data() + 128); }
  numeric::Difference* difference() const { return reinterpret_cast<numeric::Difference*>(scalars.data() + 192); }
  // n elements in tensors of unequal sizes, one after the other.
  std::vector<gpu::BucketTensor> tensors(const gpu::DeviceMemory& memory, std::size_t element_bytes) const {
    std::vector<gpu::BucketTensor> all;
    std::size_t at = 0;
    for (std::size_t k = 0; k < bucket_tensors; ++k) {
      const std::size_t even = n / bucket_tensors / 64 * 64;
      const std::size_t size = k + 1 == bucket_tensors ? n - at : k % 2 ? even + 4096 : even - 4096;
      all.push_back({memory.data() + at * element_bytes, size});
      at += size;
    }
    return all;
  }
};

numeric::AdamScalars adam_scalars() {
  numeric::AdamScalars s;
  s.learning_rate = 0x1p-10f;
  s.beta1 = 0.9f;
  s.one_minus_beta1 = 0.1f;
  s.beta2 = 0.999f;
  s.one_minus_beta2 = 0.001f;
  s.epsilon = 0x1p-27f;
  s.weight_decay = 0.01f;
  s.bias_correction1 = 0.5f;
  s.bias_correction2 = 0.25f;
  return s;
}

numeric::MixedAdamCall mixed(const Arrays& a, Dtype gradient_dtype, const gpu::DeviceMemory& gradient) {
  return {a.p(), a.m(), a.v(), gradient_dtype, gradient.data(), Dtype::bfloat16, a.output.data()};
}

void fused_step(const Arrays& a) {
  gpu::accumulate_with_norm(a.s(), Dtype::float32, a.accumulator.data(), Dtype::bfloat16, a.small.data(), 0.5f, n, a.norm(), a.flag(), a.workspace.data());
  gpu::clip_coefficient(a.s(), a.norm(), 1.0, a.coefficient());
  gpu::adam_mixed(a.s(), mixed(a, Dtype::float32, a.accumulator), 0.5f, a.coefficient(), adam_scalars(), n);
}

void unfused_step(const Arrays& a) {
  auto* gradient = reinterpret_cast<float*>(a.accumulator.data());
  gpu::accumulate(a.s(), Dtype::float32, gradient, Dtype::bfloat16, a.small.data(), n);
  gpu::flag_not_finite(a.s(), Dtype::float32, gradient, n, a.flag());
  gpu::multiply(a.s(), Dtype::float32, gradient, 0.5f, n);
  gpu::squared_norm(a.s(), Dtype::float32, gradient, n, a.norm(), a.workspace.data());
  gpu::clip_coefficient(a.s(), a.norm(), 1.0, a.coefficient());
  gpu::multiply_by_stored(a.s(), Dtype::float32, gradient, a.coefficient(), n);
  gpu::adam_fused(a.s(), a.p(), gradient, a.m(), a.v(), adam_scalars(), n);
  gpu::convert(a.s(), Dtype::bfloat16, a.output.data(), Dtype::float32, a.p(), n);
  gpu::fill(a.s(), Dtype::float32, gradient, 0.0, n);
}

struct Benchmark {
  const char* kernel;
  double bytes_per_element;
  std::function<void(const Arrays&)> run;
};

constexpr Dtype fp32 = Dtype::float32;
constexpr Dtype bf16 = Dtype::bfloat16;
constexpr Dtype fp16 = Dtype::float16;

std::vector<Benchmark> element_wise() {
  return {
      {"accumulate fp32 += bf16", 10, [](const Arrays& a) { gpu::accumulate(a.s(), fp32, a.accumulator.data(), bf16, a.small.data(), n); }},
      {"accumulate fp32 += fp32", 12, [](const Arrays& a) { gpu::accumulate(a.s(), fp32, a.accumulator.data(), fp32, a.g(), n); }},
      {"accumulate bf16 += bf16", 6, [](const Arrays& a) { gpu::accumulate(a.s(), bf16, a.output.data(), bf16, a.small.data(), n); }},
      {"accumulate fp16 += fp16", 6, [](const Arrays& a) { gpu::accumulate(a.s(), fp16, a.output.data(), fp16, a.small.data(), n); }},
      {"convert fp32 to bf16", 6, [](const Arrays& a) { gpu::convert(a.s(), bf16, a.output.data(), fp32, a.g(), n); }},
      {"convert fp32 to fp16", 6, [](const Arrays& a) { gpu::convert(a.s(), fp16, a.output.data(), fp32, a.g(), n); }},
      {"convert bf16 to fp32", 6, [](const Arrays& a) { gpu::convert(a.s(), fp32, a.accumulator.data(), bf16, a.small.data(), n); }},
      {"fill fp32", 4, [](const Arrays& a) { gpu::fill(a.s(), fp32, a.accumulator.data(), 0.5, n); }},
      {"multiply fp32", 8, [](const Arrays& a) { gpu::multiply(a.s(), fp32, a.g(), -1.0f, n); }},
      {"multiply_by_stored fp32", 8, [](const Arrays& a) { gpu::multiply_by_stored(a.s(), fp32, a.g(), a.coefficient(), n); }},
      {"unscale fp32", 8, [](const Arrays& a) { gpu::unscale(a.s(), fp32, a.g(), -1.0f, n, a.flag()); }},
      {"unscale fp16", 4, [](const Arrays& a) { gpu::unscale(a.s(), fp16, a.output.data(), -1.0f, n, a.flag()); }},
      {"flag_not_finite fp32", 4, [](const Arrays& a) { gpu::flag_not_finite(a.s(), fp32, a.g(), n, a.flag()); }},
  };
}

std::vector<Benchmark> reductions_and_buckets() {
  return {
      {"squared_norm fp32", 4, [](const Arrays& a) { gpu::squared_norm(a.s(), fp32, a.g(), n, a.norm(), a.workspace.data()); }},
      {"squared_norm bf16", 2, [](const Arrays& a) { gpu::squared_norm(a.s(), bf16, a.small.data(), n, a.norm(), a.workspace.data()); }},
      {"accumulate_with_norm fp32 += bf16", 10,
       [](const Arrays& a) { gpu::accumulate_with_norm(a.s(), fp32, a.accumulator.data(), bf16, a.small.data(), 1.0f, n, a.norm(), a.flag(), a.workspace.data()); }},
      {"flatten 300 tensors bf16", 4, [](const Arrays& a) { gpu::flatten(a.s(), bf16, a.output.data(), bf16, a.tensors(a.small, 2)); }},
      {"flatten 300 tensors bf16 to fp32", 6, [](const Arrays& a) { gpu::flatten(a.s(), fp32, a.accumulator.data(), bf16, a.tensors(a.small, 2)); }},
      {"unflatten 300 tensors fp32 to bf16", 6, [](const Arrays& a) { gpu::unflatten(a.s(), bf16, a.tensors(a.output, 2), fp32, a.g()); }},
      {"difference fp32, equal", 8, [](const Arrays& a) { gpu::difference(a.s(), fp32, a.m(), a.v(), nullptr, n, a.difference()); }},
      {"difference fp32, unlike", 8, [](const Arrays& a) { gpu::difference(a.s(), fp32, a.accumulator.data(), a.p(), nullptr, n, a.difference()); }},
      {"difference fp32 with bounds", 12, [](const Arrays& a) { gpu::difference(a.s(), fp32, a.accumulator.data(), a.p(), a.v(), n, a.difference()); }},
      {"difference bf16", 4, [](const Arrays& a) { gpu::difference(a.s(), bf16, a.small.data(), a.output.data(), nullptr, n, a.difference()); }},
  };
}

std::vector<Benchmark> optimizers_and_steps() {
  return {
      {"sgd", 12, [](const Arrays& a) { gpu::sgd(a.s(), a.p(), a.g(), 0x1p-10f, 0.01f, n); }},
      {"adam_fused", 28, [](const Arrays& a) { gpu::adam_fused(a.s(), a.p(), a.g(), a.m(), a.v(), adam_scalars(), n); }},
      {"adam_cpu", 28, [](const Arrays& a) { gpu::adam_cpu(a.s(), a.p(), a.g(), a.m(), a.v(), adam_scalars(), n); }},
      {"adam_mixed fp32 gradient, bf16 output", 30, [](const Arrays& a) { gpu::adam_mixed(a.s(), mixed(a, fp32, a.gradient), 1.0f, a.coefficient(), adam_scalars(), n); }},
      {"adam_mixed bf16 gradient, bf16 output", 28, [](const Arrays& a) { gpu::adam_mixed(a.s(), mixed(a, bf16, a.small), 1.0f, a.coefficient(), adam_scalars(), n); }},
      {"step of separate passes", 72, unfused_step},
      {"fused step", 40, fused_step},
  };
}

// The speed that counts as all of it: cudaMemcpy between two arrays on the device.
double copy_gigabytes_per_second(const Arrays& a) {
  const double milliseconds = median_milliseconds(
      a.stream, repetitions, [&] { gpu::check(cudaMemcpyAsync(a.accumulator.data(), a.gradient.data(), n * 4, cudaMemcpyDeviceToDevice, a.s()), "copy on the device"); });
  return Measurement{"copy", n, 8, milliseconds}.gigabytes_per_second();
}

int measure(const std::string& device, const char* json) {
  const Arrays arrays;
  const double copy = copy_gigabytes_per_second(arrays);
  std::printf("# %s\n# copy on the device: %.1f GB/s; median of %zu, arrays of %zu elements\n", device.c_str(), copy, repetitions, n);
  print_header();
  std::vector<Measurement> all;
  bool plausible = copy > 0;
  for (const std::vector<Benchmark>& part : {element_wise(), reductions_and_buckets(), optimizers_and_steps()})
    for (const Benchmark& benchmark : part) {
      const double milliseconds = median_milliseconds(arrays.stream, repetitions, [&] { benchmark.run(arrays); });
      all.push_back({benchmark.kernel, n, benchmark.bytes_per_element, milliseconds});
      plausible &= milliseconds > 0;
      print_row(all.back(), copy);
    }
  if (all.empty() || !plausible) {
    std::fprintf(stderr, "gpu_benchmarks: nothing was measured\n");
    return 1;
  }
  const Measurement& fused = all.back();
  const Measurement& separate = all[all.size() - 2];
  std::printf("# a fused step moves %g bytes an element where separate passes move %g, and is %.2f times as fast\n", fused.bytes_per_element, separate.bytes_per_element,
              separate.milliseconds / fused.milliseconds);
  if (json && !write_json(json, json_of(device, copy, all))) {
    std::fprintf(stderr, "gpu_benchmarks: %s cannot be written\n", json);
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace gradledger::testing

int main(int argc, char** argv) {
  using namespace gradledger;
  const bool with_json = argc == 3 && std::strcmp(argv[1], "--json") == 0;
  if (argc != 1 && !with_json) {
    std::fprintf(stderr, "usage: gpu_benchmarks [--json FILE]\n");
    return 2;
  }
  try {
    const Result<gpu::DeviceDescription> device = gpu::find_device();
    if (!device) {
      std::fprintf(stderr, "%s\n", device.error().text().c_str());
      return 4;
    }
    return testing::measure(device->text(), with_json ? argv[2] : nullptr);
  } catch (const gpu::DeviceError& error) {
    std::fprintf(stderr, "gpu_benchmarks: %s\n", error.what());
    return 3;
  }
}
