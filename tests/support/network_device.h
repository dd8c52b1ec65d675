// The device of gpu/network_pass.h on the CPU: an SGEMM by columns as BLAS defines it, and launches replayed thread by thread.
#pragma once

#include <algorithm>
#include <list>
#include <optional>
#include <vector>

#include "gpu/network_pass.h"
#include "sim/trace/autograd.h"
#include "tests/gpu/twins/replay.h"

namespace gradledger::testing {

class CpuDevice {
 public:
  float* allocate(std::size_t elements) {
    // Vectors of 16 bytes: what the device's allocator aligns to is more.
    memory_.emplace_back((elements + 3) / 4 + 1);
    return memory_.back().front().element;
  }

  void gemm(const gpu::GemmCall& call) {
    ++gemms;
    for (std::size_t column = 0; column < call.n; ++column)
      for (std::size_t row = 0; row < call.m; ++row) {
        float sum = 0;
        for (std::size_t i = 0; i < call.k; ++i) {
          const float a = call.a[call.transpose_a ? row * call.lda + i : i * call.lda + row];
          const float b = call.b[call.transpose_b ? i * call.ldb + column : column * call.ldb + i];
          sum += a * b;
        }
        call.c[column * call.ldc + row] = sum;
      }
  }

  template <class Operation>
  void apply(const Operation& operation, std::size_t n) const {
    Replay{{0, 0}, Order{7}}(operation, n);
  }

  std::size_t gemms = 0;

 private:
  struct alignas(16) Vector {
    float element[4];
  };
  std::list<std::vector<Vector>> memory_;
};

// What gpu/mlp_cublas.cu does, without a GPU.
class ReplayedAutograd final : public Autograd {
 public:
  ReplayedAutograd(const Scenario& scenario, const GradientSource& source) : data_(*source.network_data()) {
    std::vector<const float*> weights;
    for (std::uint32_t p = 0; p < scenario.parameters.size(); ++p) {
      numel_.push_back(scenario.parameters[p].numel);
      std::vector<double> exact(numel_.back());
      source.initial_parameter(p, 0, exact);
      float* weight = device_.allocate(numel_.back());
      std::copy(exact.begin(), exact.end(), weight);
      weights.push_back(weight);
      gradients_.push_back(device_.allocate(numel_.back()));
    }
    float* ones = device_.allocate(data_.batch());
    std::fill_n(ones, data_.batch(), 1.0f);
    target_ = device_.allocate(std::size_t{data_.batch()} * data_.network().layers.back().out);
    pass_.emplace(device_, data_.network(), data_.batch(), std::move(weights), gradients_, ones);
  }

  void run(std::uint32_t backward, std::uint32_t rank, std::vector<std::vector<float>>& gradients) override {
    const std::size_t in = data_.network().layers.front().in, out = data_.network().layers.back().out;
    for (std::uint32_t n = 0; n < data_.batch(); ++n) data_.sample(backward, rank, n, {pass_->input() + n * in, in}, {target_ + n * out, out});
    pass_->run(target_);
    gradients.clear();
    for (std::size_t p = 0; p < numel_.size(); ++p) gradients.emplace_back(gradients_[p], gradients_[p] + numel_[p]);
  }

  std::size_t gemms() const { return device_.gemms; }

 private:
  const NetworkData& data_;
  CpuDevice device_;
  std::vector<float*> gradients_;
  std::vector<std::size_t> numel_;
  float* target_ = nullptr;
  std::optional<gpu::NetworkPass<CpuDevice>> pass_;
};

}  // namespace gradledger::testing
