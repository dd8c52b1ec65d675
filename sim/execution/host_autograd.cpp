#include "sim/execution/host_autograd.h"

#include <algorithm>

#include "sim/numeric/layers.h"

namespace gradledger {

HostAutograd::HostAutograd(const Scenario& scenario, const GradientSource& source)
    : data_(*source.network_data()), mlp_(data_.network()), inputs_(mlp_.layers.size()), sums_(mlp_.layers.size()) {
  for (std::uint32_t p = 0; p < scenario.parameters.size(); ++p) {
    std::vector<double> exact(scenario.parameters[p].numel);
    source.initial_parameter(p, 0, exact);
    weights_.emplace_back(exact.begin(), exact.end());
  }
  for (std::size_t l = 0; l < mlp_.layers.size(); ++l) {
    inputs_[l].resize(mlp_.layers[l].in);
    sums_[l].resize(mlp_.layers[l].out);
  }
  target_.resize(mlp_.layers.back().out);
}

void HostAutograd::run(std::uint32_t backward_event, std::uint32_t rank, std::vector<std::vector<float>>& gradients) {
  gradients.resize(weights_.size());
  for (std::size_t p = 0; p < weights_.size(); ++p) gradients[p].assign(weights_[p].size(), 0.0f);
  for (std::uint32_t n = 0; n < data_.batch(); ++n) {
    data_.sample(backward_event, rank, n, inputs_[0], target_);
    forward();
    backward(gradients);
  }
}

void HostAutograd::forward() {
  for (std::size_t l = 0; l < mlp_.layers.size(); ++l) {
    const LinearLayer& layer = mlp_.layers[l];
    numeric::linear(weights_[layer.weight].data(), layer.bias ? weights_[*layer.bias].data() : nullptr, inputs_[l].data(), sums_[l].data(), layer.in, layer.out);
    if (l + 1 == mlp_.layers.size()) return;
    for (std::size_t i = 0; i < layer.out; ++i) {
      const float x = sums_[l][i];
      inputs_[l + 1][i] = mlp_.activation == Activation::gelu ? numeric::gelu(x) : mlp_.activation == Activation::relu ? std::max(x, 0.0f) : x;
    }
  }
}

void HostAutograd::backward(std::vector<std::vector<float>>& gradients) {
  const auto outputs = static_cast<float>(std::uint64_t{data_.batch()} * target_.size());
  delta_.resize(target_.size());
  numeric::squared_error_gradient(sums_.back().data(), target_.data(), 2.0f / outputs, delta_.data(), target_.size());
  for (std::size_t l = mlp_.layers.size(); l-- > 0;) {
    const LinearLayer& layer = mlp_.layers[l];
    numeric::linear_parameter_gradients(inputs_[l].data(), delta_.data(), gradients[layer.weight].data(), layer.bias ? gradients[*layer.bias].data() : nullptr, layer.in,
                                        layer.out);
    if (l == 0) return;
    passed_on_.resize(layer.in);
    numeric::linear_input_gradient(weights_[layer.weight].data(), delta_.data(), passed_on_.data(), layer.in, layer.out);
    for (std::size_t i = 0; i < layer.in; ++i) {
      const float x = sums_[l - 1][i];
      if (mlp_.activation == Activation::gelu) passed_on_[i] *= numeric::gelu_slope(x);
      else if (mlp_.activation == Activation::relu && !(x > 0)) passed_on_[i] = 0;
    }
    delta_.swap(passed_on_);
  }
}

}  // namespace gradledger
