// Forward and backward of a network in fp64, and for each element of each gradient a bound on what any fp32 evaluation of the same formulas
// differs by: any order of every sum, fused or not, inputs and weights exact. docs/arithmetic.md derives it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ref/error_chain.h"
#include "sim/scenario/workload.h"

namespace gradledger::ref {

// By parameter, in the scenario's order.
struct MlpGradients {
  std::vector<std::vector<double>> value, error;
};

class MlpReference {
 public:
  // weights: by parameter, every element an fp32 value. Both outlive the reference.
  MlpReference(const Mlp& mlp, std::uint32_t batch, const std::vector<std::vector<double>>& weights);

  // Fills input and target of one sample.
  using Sample = std::function<void(std::uint32_t sample, std::span<float> input, std::span<float> target)>;

  // Gradients of the mean of (output - target)^2 over all outputs of the batch.
  MlpGradients run(const Sample& sample);

 private:
  // A vector of the pass with its error.
  struct Vector {
    std::vector<double> value, error;

    double largest() const;
  };

  void forward(std::size_t layer);
  void activate(std::size_t layer);
  void loss_gradient(std::span<const float> target);
  void collect(std::size_t layer, MlpGradients& out) const;
  void backward(std::size_t layer);
  MatrixView map_of(std::size_t layer, bool transposed) const;

  const Mlp& mlp_;
  std::uint32_t batch_;
  const std::vector<std::vector<double>>& weights_;
  std::vector<double> largest_weight_;  // by layer
  bool composed_;                       // errors go through products of maps; else those would take too long, and the bounds are coarser
  double slack_;
  ErrorChain chain_;
  std::vector<Vector> input_, sum_, slope_;  // by layer: what goes in, what comes out, derivative of the activation there
  Vector delta_;                             // derivative of the loss by a layer's output
  std::vector<double> local_;
};

}  // namespace gradledger::ref
