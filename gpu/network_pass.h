// Forward and backward of a network over a whole batch: which matrix products, in which form, and what lies between them. Whoever runs it
// brings the device: cuBLAS and launches in gpu/mlp_cublas.cpp, loops on the CPU in tests.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "gpu/layers.h"
#include "sim/scenario/scenario.h"

namespace gradledger::gpu {

// A call of SGEMM, which knows columns only: c (m x n) = op(a) op(b), leading dimensions in elements.
struct GemmCall {
  bool transpose_a, transpose_b;
  std::size_t m, n, k;
  const float *a, *b;
  std::size_t lda, ldb;
  float* c;
  std::size_t ldc;
};

// The call that makes the matrix c (rows x columns) = op(a) op(b) of matrices stored row by row, `inner` being what the sums run over: read
// by columns each is its own transpose, so the factors change places.
inline GemmCall row_major_product(bool transpose_a, bool transpose_b, std::size_t rows, std::size_t columns, std::size_t inner, const float* a, const float* b, float* c) {
  return {transpose_b, transpose_a, columns, rows, inner, b, a, transpose_b ? inner : columns, transpose_a ? rows : inner, c, columns};
}

// Device has: float* allocate(elements), valid as long as the device; gemm(GemmCall); apply(operation, n) as of gpu/elementwise.h.
// Everything is enqueued in order.
template <class Device>
class NetworkPass {
 public:
  // weights and gradients: by parameter, on the device; the ones as many as the batch has samples.
  NetworkPass(Device& device, const Mlp& mlp, std::size_t batch, std::vector<const float*> weights, std::vector<float*> gradients, const float* ones)
      : device_(device), mlp_(mlp), batch_(batch), weights_(std::move(weights)), gradients_(std::move(gradients)), ones_(ones) {
    std::size_t widest = 0;
    for (const LinearLayer& layer : mlp.layers) {
      sums_.push_back(device.allocate(batch * layer.out));
      inputs_.push_back(device.allocate(batch * layer.in));
      widest = std::max<std::size_t>(widest, layer.in);
    }
    passed_on_[0] = device.allocate(batch * widest);
    passed_on_[1] = device.allocate(batch * widest);
  }

  float* input() { return inputs_.front(); }

  // Precondition: input() is filled, and target (batch x outputs). Leaves every gradient.
  void run(const float* target) {
    for (std::size_t l = 0; l < mlp_.layers.size(); ++l) forward(l);
    const std::size_t outputs = batch_ * mlp_.layers.back().out;
    device_.apply(Combine<float, float, SquaredErrorGradient>{sums_.back(), target, {2.0f / static_cast<float>(outputs)}}, outputs);
    float* delta = sums_.back();
    for (std::size_t l = mlp_.layers.size(); l-- > 0;) delta = backward(l, delta);
  }

 private:
  void forward(std::size_t l) {
    const LinearLayer& layer = mlp_.layers[l];
    const std::size_t n = batch_ * layer.out;
    device_.gemm(row_major_product(false, true, batch_, layer.out, layer.in, inputs_[l], weights_[layer.weight], sums_[l]));
    if (layer.bias) device_.apply(AddBias{sums_[l], weights_[*layer.bias], layer.out}, n);
    if (l + 1 == mlp_.layers.size()) return;
    if (mlp_.activation == Activation::gelu) device_.apply(Map<float, float, Gelu>{inputs_[l + 1], sums_[l], {}}, n);
    else if (mlp_.activation == Activation::relu) device_.apply(Map<float, float, Relu>{inputs_[l + 1], sums_[l], {}}, n);
    else device_.apply(Map<float, float, Converted<float, float>>{inputs_[l + 1], sums_[l], {}}, n);
  }

  // The derivative of the loss by the sums of the layer before; none before the first.
  float* backward(std::size_t l, float* delta) {
    const LinearLayer& layer = mlp_.layers[l];
    device_.gemm(row_major_product(true, false, layer.out, layer.in, batch_, delta, inputs_[l], gradients_[layer.weight]));
    if (layer.bias) device_.gemm(row_major_product(true, false, layer.out, 1, batch_, delta, ones_, gradients_[*layer.bias]));
    if (l == 0) return nullptr;
    float* before = passed_on_[l % 2];
    const std::size_t n = batch_ * layer.in;
    device_.gemm(row_major_product(false, false, batch_, layer.in, layer.out, delta, weights_[layer.weight], before));
    if (mlp_.activation == Activation::gelu) device_.apply(Combine<float, float, GeluBackward>{before, sums_[l - 1], {}}, n);
    else if (mlp_.activation == Activation::relu) device_.apply(Combine<float, float, ReluBackward>{before, sums_[l - 1], {}}, n);
    return before;
  }

  Device& device_;
  const Mlp& mlp_;
  std::size_t batch_;
  std::vector<const float*> weights_;
  std::vector<float*> gradients_;
  const float* ones_;
  std::vector<float*> sums_, inputs_;  // by layer
  float* passed_on_[2];
};

}  // namespace gradledger::gpu
