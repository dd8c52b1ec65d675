// What gradledger has to know of AveragingOptimizer: how it is made, what its calls are, and what it holds.
#pragma once

#include <gradledger/wrapper.h>

#include "averaging.h"

class Judged final : public gradledger::Wrapper {
 public:
  static constexpr gradledger::Shows shows{.applied_gradients = true, .accumulators = true, .weights = true};

  Judged(const gradledger::Configuration& configuration, gradledger::Communicator& ranks, std::size_t micro_batches)
      : optimizer_(weights_of(configuration), static_cast<float>(configuration.optimizer.lr), micro_batches,
                   [&ranks](std::span<float> values) { ranks.all_reduce(values, gradledger::Reduction::avg); }) {}

  void backward(const gradledger::Backward& backward) override {
    optimizer_.begin_backward();
    for (const gradledger::Gradient& gradient : backward.gradients) optimizer_.add(gradient.parameter, gradient.values);
    optimizer_.end_backward();
  }
  void step() override { optimizer_.step(); }
  void zero_grad() override { optimizer_.zero_grad(); }

  void show(gradledger::Shown& out) override {
    const auto sums = optimizer_.averaged() ? gradledger::Role::reduced : gradledger::Role::local;
    for (std::uint32_t p = 0; p < optimizer_.weights().size(); ++p) {
      out.add(sums, "sums[" + std::to_string(p) + "]", p, optimizer_.sums()[p]);
      if (!optimizer_.applied().empty()) out.add(gradledger::Role::applied, "applied[" + std::to_string(p) + "]", p, optimizer_.applied()[p]);
      out.add(gradledger::Role::parameter, "weights[" + std::to_string(p) + "]", p, optimizer_.weights()[p]);
    }
  }

 private:
  static std::vector<runtime::Tensor> weights_of(const gradledger::Configuration& configuration) {
    std::vector<runtime::Tensor> out;
    for (const gradledger::Parameter& parameter : configuration.parameters) out.push_back(parameter.weights);
    return out;
  }

  runtime::AveragingOptimizer optimizer_;
};
