// Backwards that are wrong in one way, and a producer that runs one of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <vector>

#include "sim/trace/autograd.h"
#include "tests/support/networks.h"

namespace gradledger::testing {

enum class Fault { none, transposed_weight, no_bias_in_the_forward, no_bias_gradient, slope_by_tanh, slope_of_the_output, sum_for_mean, swapped_sample, products_in_tf32 };

// A third evaluation, in fp32 and written for clarity, last sample first.
class FaultyAutograd final : public Autograd {
 public:
  FaultyAutograd(const Scenario& scenario, const GradientSource& source, Fault fault) : data_(*source.network_data()), mlp_(data_.network()), fault_(fault) {
    for (std::uint32_t p = 0; p < scenario.parameters.size(); ++p) {
      std::vector<double> exact(scenario.parameters[p].numel);
      source.initial_parameter(p, 0, exact);
      weights_.emplace_back(exact.begin(), exact.end());
    }
  }

  void run(std::uint32_t event, std::uint32_t rank, std::vector<std::vector<float>>& gradients) override {
    gradients.clear();
    for (const auto& w : weights_) gradients.emplace_back(w.size(), 0.0f);
    for (std::uint32_t n = data_.batch(); n-- > 0;) {
      std::vector<float> input(mlp_.layers.front().in), target(mlp_.layers.back().out);
      data_.sample(event, rank, n, input, target);
      std::vector<float> other = target;
      if (fault_ == Fault::swapped_sample && n == 0) data_.sample(event, 1 - rank, n, input, other);
      one_sample(input, target, gradients);
    }
  }

 private:
  float product(float a, float b) const { return fault_ == Fault::products_in_tf32 ? tf32(a) * tf32(b) : a * b; }
  // 10 bits after the point, to nearest.
  static float tf32(float x) { return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + 0x1000u) & ~0x1FFFu); }

  float slope(float x) const {
    if (mlp_.activation != Activation::gelu) return mlp_.activation == Activation::none || x > 0 ? 1.0f : 0.0f;
    const double z = x;
    if (fault_ == Fault::slope_by_tanh) {
      const double a = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, t = std::tanh(a * (z + 0.044715 * z * z * z));
      return static_cast<float>(0.5 * (1 + t) + 0.5 * z * (1 - t * t) * a * (1 + 3 * 0.044715 * z * z));
    }
    return static_cast<float>(0.5 * std::erfc(-z / std::numbers::sqrt2) + z * std::exp(-z * z / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2);
  }
  float activation(float x) const {
    if (mlp_.activation != Activation::gelu) return mlp_.activation == Activation::none ? x : std::max(x, 0.0f);
    return static_cast<float>(0.5 * x * std::erfc(-x / std::numbers::sqrt2));
  }

  void one_sample(const std::vector<float>& input, const std::vector<float>& target, std::vector<std::vector<float>>& gradients) {
    std::vector<std::vector<float>> inputs{input}, sums;
    for (const LinearLayer& l : mlp_.layers) {
      std::vector<float> y(l.out);
      for (std::uint32_t o = 0; o < l.out; ++o) {
        y[o] = l.bias && fault_ != Fault::no_bias_in_the_forward ? weights_[*l.bias][o] : 0.0f;
        for (std::uint32_t i = l.in; i-- > 0;) y[o] += product(weights_[l.weight][std::size_t{o} * l.in + i], inputs.back()[i]);
      }
      sums.push_back(y);
      for (float& x : y) x = activation(x);
      inputs.push_back(y);
    }
    const auto outputs = static_cast<float>(fault_ == Fault::sum_for_mean ? 1 : data_.batch() * target.size());
    std::vector<float> delta;
    for (std::size_t o = 0; o < target.size(); ++o) delta.push_back(2 * (sums.back()[o] - target[o]) / outputs);
    for (std::size_t k = mlp_.layers.size(); k-- > 0;) {
      const LinearLayer& l = mlp_.layers[k];
      std::vector<float> before(l.in);
      const bool transposed = fault_ == Fault::transposed_weight && l.in == l.out;
      for (std::uint32_t o = l.out; o-- > 0;)
        for (std::uint32_t i = 0; i < l.in; ++i) {
          gradients[l.weight][std::size_t{o} * l.in + i] += product(delta[o], inputs[k][i]);
          before[i] += product(weights_[l.weight][transposed ? std::size_t{i} * l.in + o : std::size_t{o} * l.in + i], delta[o]);
        }
      for (std::uint32_t o = 0; l.bias && fault_ != Fault::no_bias_gradient && o < l.out; ++o) gradients[*l.bias][o] += delta[o];
      if (k == 0) return;
      for (std::uint32_t i = 0; i < l.in; ++i) before[i] *= slope(fault_ == Fault::slope_of_the_output ? inputs[k][i] : sums[k - 1][i]);
      delta = before;
    }
  }

  const NetworkData& data_;
  const Mlp& mlp_;
  Fault fault_;
  std::vector<std::vector<float>> weights_;
};

class FaultyProducer final : public Producer {
 public:
  FaultyProducer(const Scenario& scenario, const Timeline& timeline, Fault fault) : scenario_(scenario), inner_(scenario, timeline), fault_(fault) {}

  std::string_view name() const override { return "faulty backward"; }

  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override {
    if (!source.network_data()) return inner_.run(source, options, sink);
    FaultyAutograd autograd(scenario_, source, fault_);
    return inner_.run(ComputedGradients(source, autograd, scenario_.world_size), options, sink);
  }

 private:
  const Scenario& scenario_;
  HostExecutor inner_;
  Fault fault_;
};

}  // namespace gradledger::testing
