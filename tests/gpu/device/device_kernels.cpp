// The kernels on the GPU, as the one implementation under test of this program.
#include <cstdlib>
#include <optional>
#include <string_view>

#include "gpu/device.h"
#include "gpu/kernels.h"
#include "gpu/pack.h"
#include "tests/gpu/kernels_under_test.h"

namespace gradledger::testing {
namespace {

class DeviceKernels final : public Kernels {
 public:
  DeviceKernels() {
    const Result<gpu::DeviceDescription> device = gpu::find_device();
    if (device) stream_.emplace();
    else why_not_ = device.error().message;
  }

  std::string unavailable() const override { return why_not_; }

  // A sixteenth of the exhaustive tables takes seconds, all of them minutes.
  std::size_t rows_step() const override {
    const char* wanted = std::getenv("GRADLEDGER_EXHAUSTIVE");
    return wanted && std::string_view(wanted) == "full" ? 1 : 16;
  }

  std::size_t long_array_elements() const override { return std::size_t{gpu::blocks_max} * gpu::threads_per_block * 8 * 5 + 12'345; }

  std::byte* place(std::size_t slot, const std::vector<std::byte>& bytes) override {
    if (slots_.size() <= slot) slots_.resize(slot + 1);
    // Of the exact size, so that compute-sanitizer sees what leaves it; kept while the size stays.
    if (slots_[slot].bytes() != bytes.size()) slots_[slot] = gpu::DeviceMemory(bytes.size());
    gpu::check(cudaMemcpyAsync(slots_[slot].data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream()), "copy to the device");
    return slots_[slot].data();
  }
  void read(std::size_t slot, std::vector<std::byte>& bytes) override {
    gpu::check(cudaMemcpyAsync(bytes.data(), slots_[slot].data(), bytes.size(), cudaMemcpyDeviceToHost, stream()), "copy from the device");
    stream_->synchronize();
  }

  void convert(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) override {
    gpu::convert(stream(), target_dtype, target, source_dtype, source, n);
  }
  void accumulate(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) override {
    gpu::accumulate(stream(), target_dtype, target, source_dtype, source, n);
  }
  void multiply(Dtype dtype, void* target, float factor, std::size_t n) override { gpu::multiply(stream(), dtype, target, factor, n); }
  void divide(Dtype dtype, void* target, float divisor, std::size_t n) override { gpu::divide(stream(), dtype, target, divisor, n); }
  void premultiply(Dtype dtype, void* target, const void* source, float scalar, std::size_t n) override { gpu::premultiply(stream(), dtype, target, source, scalar, n); }
  void fused_accumulate(Dtype dtype, void* target, const void* source, float scalar, std::size_t n) override { gpu::fused_accumulate(stream(), dtype, target, source, scalar, n); }
  void maximum_u8(void* target, const void* source, std::size_t n) override { gpu::maximum_u8(stream(), target, source, n); }
  void fill(Dtype dtype, void* target, double value, std::size_t n) override { gpu::fill(stream(), dtype, target, value, n); }
  void flag_not_finite(Dtype dtype, const void* source, std::size_t n, std::uint8_t* flag) override { gpu::flag_not_finite(stream(), dtype, source, n, flag); }
  void squared_norm(Dtype dtype, const void* source, std::size_t n, double* result) override {
    const gpu::DeviceMemory workspace(gpu::squared_norm_workspace_bytes(n));
    gpu::squared_norm(stream(), dtype, source, n, result, workspace.data());
    stream_->synchronize();
  }
  void square_root(float* target, std::size_t n) override { gpu::square_root(stream(), target, n); }
  void sgd(float* parameter, const float* gradient, float learning_rate, float weight_decay, std::size_t n) override {
    gpu::sgd(stream(), parameter, gradient, learning_rate, weight_decay, n);
  }
  void adam_fused(float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) override {
    gpu::adam_fused(stream(), parameter, gradient, first, second, s, n);
  }
  void adam_cpu(float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) override {
    gpu::adam_cpu(stream(), parameter, gradient, first, second, s, n);
  }
  void unscale(Dtype dtype, void* target, float factor, std::size_t n, std::uint8_t* flag) override { gpu::unscale(stream(), dtype, target, factor, n, flag); }
  void multiply_by_stored(Dtype dtype, void* target, const float* factor, std::size_t n) override { gpu::multiply_by_stored(stream(), dtype, target, factor, n); }
  void accumulate_with_norm(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, float factor, std::size_t n, double* norm, std::uint8_t* flag) override {
    const gpu::DeviceMemory workspace(gpu::squared_norm_workspace_bytes(n));
    gpu::accumulate_with_norm(stream(), target_dtype, target, source_dtype, source, factor, n, norm, flag, workspace.data());
    stream_->synchronize();
  }
  void combined_factor(const double* squared_norm, double scale, double clip, float* factor) override { gpu::combined_factor(stream(), squared_norm, scale, clip, factor); }
  void clip_coefficient(const double* squared_norm, double clip, float* coefficient) override { gpu::clip_coefficient(stream(), squared_norm, clip, coefficient); }
  void adam_mixed(const numeric::MixedAdamCall& call, float factor, const float* coefficient, const numeric::AdamScalars& s, std::size_t n) override {
    gpu::adam_mixed(stream(), call, factor, coefficient, s, n);
  }
  void flatten(Dtype flat_dtype, void* flat, Dtype tensor_dtype, const std::vector<Tensor>& tensors) override {
    gpu::flatten(stream(), flat_dtype, flat, tensor_dtype, of_bucket(tensors));
  }
  void unflatten(Dtype tensor_dtype, const std::vector<Tensor>& tensors, Dtype flat_dtype, const void* flat) override {
    gpu::unflatten(stream(), tensor_dtype, of_bucket(tensors), flat_dtype, flat);
  }
  void difference(Dtype dtype, const void* a, const void* b, const float* bounds, std::size_t n, numeric::Difference* result) override {
    gpu::difference(stream(), dtype, a, b, bounds, n, result);
  }

 private:
  static std::vector<gpu::BucketTensor> of_bucket(const std::vector<Tensor>& tensors) {
    std::vector<gpu::BucketTensor> all;
    for (const Tensor& tensor : tensors) all.push_back({tensor.data, tensor.n});
    return all;
  }
  cudaStream_t stream() const { return stream_->handle(); }

  std::string why_not_;
  std::optional<gpu::Stream> stream_;
  std::vector<gpu::DeviceMemory> slots_;
};

}  // namespace

std::vector<Implementation> implementations_under_test() {
  return {{"device", []() -> std::unique_ptr<Kernels> { return std::make_unique<DeviceKernels>(); }}};
}

}  // namespace gradledger::testing
