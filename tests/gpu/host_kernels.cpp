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
  void premultiply(Dtype dtype, void* target, const void* source, float scalar, std::size_t n) override {
    numeric::premultiply(dtype, target, source, scalar, n);
  }
  void fused_accumulate(Dtype dtype, void* target, const void* source, float scalar, std::size_t n) override {
    numeric::fused_accumulate(dtype, target, source, scalar, n);
  }
  void maximum_u8(void* target, const void* source, std::size_t n) override { numeric::maximum_u8(target, source, n); }
  void fill(Dtype dtype, void* target, double value, std::size_t n) override { numeric::fill(dtype, target, value, n); }
  void flag_not_finite(Dtype dtype, const void* source, std::size_t n, std::uint8_t* flag) override {
    if (!numeric::all_finite(dtype, source, n)) *flag = 1;
  }
  void squared_norm(Dtype dtype, const void* source, std::size_t n, double* result) override { *result = numeric::squared_norm(dtype, source, n); }
  void sgd(float* parameter, const float* gradient, float learning_rate, float weight_decay, std::size_t n) override {
    numeric::sgd(parameter, gradient, learning_rate, weight_decay, n);
  }
  void adam_fused(float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) override {
    numeric::adam_fused(parameter, gradient, first, second, s, n);
  }
  void adam_cpu(float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) override {
    numeric::adam_cpu(parameter, gradient, first, second, s, n);
  }

 private:
  HostMemory memory_;
};

}  // namespace

std::unique_ptr<Kernels> host_kernels() { return std::make_unique<HostKernels>(); }

}  // namespace gradledger::testing
