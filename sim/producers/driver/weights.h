// The gradient that a step applied, from the weights before and behind it: all that a black box tells.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "sim/producers/driver/messages.h"

namespace gradledger::driver {

class WeightsOfRank {
 public:
  // Initial weights: those that the rank was configured with.
  WeightsOfRank(const Scenario& scenario, const Contract& contract, const GradientSource& source);

  // (before - after) / learning rate, element by element, where SGD without decay makes that the gradient and the answer shows the weights;
  // else nothing. Remembers the weights. `error` of a piece is what their rounding may be off by: from masters in fp32 or in place, and the
  // subtraction of the step itself.
  std::optional<ShownBuffer> applied_by(const Done& done, std::vector<std::vector<double>>& errors);

 private:
  const Scenario& scenario_;
  const Contract& contract_;
  std::vector<std::vector<double>> weights_;  // by parameter, as last shown
};

}  // namespace gradledger::driver
