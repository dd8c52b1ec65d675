// The twins replayed on the CPU, as implementations under test: from the same dispatch as the launches.
#include "gpu/copies.h"
#include "gpu/difference.h"
#include "gpu/dispatch.h"
#include "gpu/fused.h"
#include "gpu/square_root.h"
#include "tests/gpu/host_memory.h"
#include "tests/gpu/twins/replay.h"
#include "tests/numeric/operands.h"

namespace gradledger::testing {
namespace {

class ReplayKernels final : public Kernels {
 public:
  explicit ReplayKernels(Replay run) : run_(run), phased_{run.order} {}

  std::size_t rows_step() const override { return sanitized ? 8191 : 257; }
  std::byte* place(std::size_t slot, const std::vector<std::byte>& bytes) override { return memory_.place(slot, bytes); }
  void read(std::size_t slot, std::vector<std::byte>& bytes) override { memory_.read(slot, bytes); }

  void convert(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) override {
    if (target_dtype != source_dtype) return gpu::dispatch::convert(run_, target_dtype, target, source_dtype, source, n);
    if (n != 0) std::memmove(target, source, n * size_of(target_dtype));
  }
  void accumulate(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) override {
    gpu::dispatch::accumulate(run_, target_dtype, target, source_dtype, source, n);
  }
  void multiply(Dtype dtype, void* target, float factor, std::size_t n) override { gpu::dispatch::multiply(run_, dtype, target, target, factor, n); }
  void divide(Dtype dtype, void* target, float divisor, std::size_t n) override { gpu::dispatch::divide(run_, dtype, target, divisor, n); }
  void premultiply(Dtype dtype, void* target, const void* source, float scalar, std::size_t n) override { gpu::dispatch::premultiply(run_, dtype, target, source, scalar, n); }
  void fused_accumulate(Dtype dtype, void* target, const void* source, float scalar, std::size_t n) override {
    gpu::dispatch::fused_accumulate(run_, dtype, target, source, scalar, n);
  }
  void maximum_u8(void* target, const void* source, std::size_t n) override { gpu::dispatch::maximum_u8(run_, target, source, n); }
  void fill(Dtype dtype, void* target, double value, std::size_t n) override { gpu::dispatch::fill(run_, dtype, target, value, n); }
  void flag_not_finite(Dtype dtype, const void* source, std::size_t n, std::uint8_t* flag) override { gpu::dispatch::flag_not_finite(run_, dtype, source, n, flag); }
  void squared_norm(Dtype dtype, const void* source, std::size_t n, double* result) override {
    std::vector<double> workspace(gpu::workspace_numel(n));
    gpu::dispatch::squared_norm(phased_, dtype, source, n, result, workspace.data());
  }
  void square_root(float* target, std::size_t n) override { run_(gpu::SquareRoot{target}, n); }
  void sgd(float* parameter, const float* gradient, float learning_rate, float weight_decay, std::size_t n) override {
    run_(gpu::Sgd{parameter, gradient, learning_rate, weight_decay}, n);
  }
  void adam_fused(float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) override {
    run_(gpu::Adam<gpu::FusedAdamFormula>{parameter, gradient, first, second, {s}}, n);
  }
  void adam_cpu(float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) override {
    run_(gpu::Adam<gpu::CpuAdamFormula>{parameter, gradient, first, second, gpu::CpuAdamFormula(s)}, n);
  }
  void unscale(Dtype dtype, void* target, float factor, std::size_t n, std::uint8_t* flag) override { gpu::dispatch::unscale(run_, dtype, target, factor, n, flag); }
  void multiply_by_stored(Dtype dtype, void* target, const float* factor, std::size_t n) override { gpu::dispatch::multiply_by_stored(run_, dtype, target, factor, n); }
  void accumulate_with_norm(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, float factor, std::size_t n, double* norm, std::uint8_t* flag) override {
    std::vector<double> workspace(gpu::workspace_numel(n));
    gpu::dispatch::accumulate_with_norm(phased_, target_dtype, target, source_dtype, source, factor, n, norm, flag, workspace.data());
  }
  void combined_factor(const double* squared_norm, double scale, double clip, float* factor) override { gpu::dispatch::combined_factor(run_, squared_norm, scale, clip, factor); }
  void clip_coefficient(const double* squared_norm, double clip, float* coefficient) override { gpu::dispatch::clip_coefficient(run_, squared_norm, clip, coefficient); }
  void adam_mixed(const numeric::MixedAdamCall& call, float factor, const float* coefficient, const numeric::AdamScalars& s, std::size_t n) override {
    gpu::dispatch::adam_mixed(run_, call, factor, coefficient, s, n);
  }
  void flatten(Dtype flat_dtype, void* flat, Dtype tensor_dtype, const std::vector<Tensor>& tensors) override {
    gpu::dispatch::flatten(phased_, flat_dtype, flat, tensor_dtype, of_bucket(tensors));
  }
  void unflatten(Dtype tensor_dtype, const std::vector<Tensor>& tensors, Dtype flat_dtype, const void* flat) override {
    gpu::dispatch::unflatten(phased_, tensor_dtype, of_bucket(tensors), flat_dtype, flat);
  }
  void difference(Dtype dtype, const void* a, const void* b, const float* bounds, std::size_t n, numeric::Difference* result) override {
    gpu::dispatch::difference(run_, phased_, dtype, a, b, bounds, n, result);
  }

 private:
  static std::vector<gpu::BucketTensor> of_bucket(const std::vector<Tensor>& tensors) {
    std::vector<gpu::BucketTensor> all;
    for (const Tensor& tensor : tensors) all.push_back({tensor.data, tensor.n});
    return all;
  }

  Replay run_;
  ReplayPhased phased_;
  HostMemory memory_;
};

}  // namespace

std::vector<Implementation> implementations_under_test() {
  const Implementation launch = {"replay_of_the_launch", []() -> std::unique_ptr<Kernels> { return std::make_unique<ReplayKernels>(Replay{}); }};
  const Implementation small_grid = {"replay_of_a_small_grid_out_of_order", []() -> std::unique_ptr<Kernels> { return std::make_unique<ReplayKernels>(Replay{{3, 96}, {7919}}); }};
  if (sanitized) return {small_grid};  // the same accesses, and more of them a thread
  return {launch, small_grid};
}

}  // namespace gradledger::testing
