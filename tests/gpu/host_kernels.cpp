#include <cmath>

#include "sim/engine/clipping.h"
#include "sim/numeric/scalar.h"
#include "tests/gpu/host_memory.h"

namespace gradledger::testing {
namespace {

class HostKernels final : public Kernels {
 public:
  std::byte* place(std::size_t slot, const std::vector<std::byte>& bytes) override { return memory_.place(slot, bytes); }
  void read(std::size_t slot, std::vector<std::byte>& bytes) override { memory_.read(slot, bytes); }

  void convert(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) override {
    numeric::convert(target_dtype, target, source_dtype, source, n);
  }
  void accumulate(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) override {
    numeric::accumulate(target_dtype, target, source_dtype, source, n);
  }
  void multiply(Dtype dtype, void* target, float factor, std::size_t n) override { numeric::multiply(dtype, target, factor, n); }
  void divide(Dtype dtype, void* target, float divisor, std::size_t n) override { numeric::divide(dtype, target, divisor, n); }
  void premultiply(Dtype dtype, void* target, const void* source, float scalar, std::size_t n) override { numeric::premultiply(dtype, target, source, scalar, n); }
  void fused_accumulate(Dtype dtype, void* target, const void* source, float scalar, std::size_t n) override { numeric::fused_accumulate(dtype, target, source, scalar, n); }
  void maximum_u8(void* target, const void* source, std::size_t n) override { numeric::maximum_u8(target, source, n); }
  void fill(Dtype dtype, void* target, double value, std::size_t n) override { numeric::fill(dtype, target, value, n); }
  void flag_not_finite(Dtype dtype, const void* source, std::size_t n, std::uint8_t* flag) override {
    if (!numeric::all_finite(dtype, source, n)) *flag = 1;
  }
  void squared_norm(Dtype dtype, const void* source, std::size_t n, double* result) override { *result = numeric::squared_norm(dtype, source, n); }
  void square_root(float* target, std::size_t n) override {
    for (std::size_t i = 0; i < n; ++i) target[i] = numeric::canonical(std::sqrt(target[i]));
  }
  void sgd(float* parameter, const float* gradient, float learning_rate, float weight_decay, std::size_t n) override {
    numeric::sgd(parameter, gradient, learning_rate, weight_decay, n);
  }
  void adam_fused(float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) override {
    numeric::adam_fused(parameter, gradient, first, second, s, n);
  }
  void adam_cpu(float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) override {
    numeric::adam_cpu(parameter, gradient, first, second, s, n);
  }
  void unscale(Dtype dtype, void* target, float factor, std::size_t n, std::uint8_t* flag) override { numeric::unscale(dtype, target, factor, n, flag); }
  void multiply_by_stored(Dtype dtype, void* target, const float* factor, std::size_t n) override { numeric::multiply(dtype, target, *factor, n); }
  void accumulate_with_norm(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, float factor, std::size_t n, double* norm, std::uint8_t* flag) override {
    numeric::accumulate_with_norm(target_dtype, target, source_dtype, source, factor, n, norm, flag);
  }
  void combined_factor(const double* squared_norm, double scale, double clip, float* factor) override {
    *factor = static_cast<float>(unscale_and_clip_factor(scale, std::sqrt(*squared_norm), clip));
  }
  void clip_coefficient(const double* squared_norm, double clip, float* coefficient) override {
    const auto found = clip > 0 ? gradledger::clip_coefficient(std::sqrt(*squared_norm), clip) : std::nullopt;
    *coefficient = static_cast<float>(found.value_or(1.0));
  }
  void adam_mixed(const numeric::MixedAdamCall& call, float factor, const float* coefficient, const numeric::AdamScalars& s, std::size_t n) override {
    numeric::adam_mixed(call, factor, *coefficient, s, n);
  }
  void flatten(Dtype flat_dtype, void* flat, Dtype tensor_dtype, const std::vector<Tensor>& tensors) override {
    auto* at = static_cast<std::byte*>(flat);
    for (const Tensor& tensor : tensors) {
      numeric::convert(flat_dtype, at, tensor_dtype, tensor.data, tensor.n);
      at += tensor.n * size_of(flat_dtype);
    }
  }
  void unflatten(Dtype tensor_dtype, const std::vector<Tensor>& tensors, Dtype flat_dtype, const void* flat) override {
    const auto* at = static_cast<const std::byte*>(flat);
    for (const Tensor& tensor : tensors) {
      numeric::convert(tensor_dtype, tensor.data, flat_dtype, at, tensor.n);
      at += tensor.n * size_of(flat_dtype);
    }
  }
  void difference(Dtype dtype, const void* a, const void* b, const float* bounds, std::size_t n, numeric::Difference* result) override {
    *result = numeric::difference(dtype, a, b, bounds, n);
  }

 private:
  HostMemory memory_;
};

}  // namespace

std::unique_ptr<Kernels> host_kernels() { return std::make_unique<HostKernels>(); }

}  // namespace gradledger::testing
