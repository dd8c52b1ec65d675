#include "sim/scenario/scenario.h"

#include <algorithm>

namespace gradledger {

OptimizerConfig EngineConfig::optimizer_of(const OptimizerGroup& group) const {
  OptimizerConfig out = optimizer;
  out.learning_rate = group.learning_rate.value_or(optimizer.learning_rate);
  out.weight_decay = group.weight_decay.value_or(optimizer.weight_decay);
  return out;
}

OptimizerConfig EngineConfig::optimizer_of(std::uint32_t parameter) const {
  for (const OptimizerGroup& group : param_groups)
    if (std::find(group.parameters.begin(), group.parameters.end(), parameter) != group.parameters.end()) return optimizer_of(group);
  return optimizer;
}

}  // namespace gradledger
