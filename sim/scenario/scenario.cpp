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

double Scenario::gradient_clipping() const {
  if (engine.config.gradient_clipping) return *engine.config.gradient_clipping;
  const auto point = point_named(engine.as_of.base, "/engine/as_of");
  expects(point.ok(), "a scenario whose as_of was not checked");
  return point->contains(Change::pr8068) ? 1.0 : 0.0;
}

// Until #7515 bf16 without ZeRO had a wrapper of its own, which accumulates in fp32.
Dtype Scenario::grad_accum_dtype() const {
  if (engine.config.grad_accum_dtype) return *engine.config.grad_accum_dtype;
  if (model_dtype != Dtype::bfloat16 || engine.config.zero.stage > 0) return model_dtype;
  const auto point = point_named(engine.as_of.base, "/engine/as_of");
  expects(point.ok(), "a scenario whose as_of was not checked");
  return point->contains(Change::pr7515) ? model_dtype : Dtype::float32;
}

Dtype Scenario::communication_dtype() const { return engine.config.communication_data_type.value_or(model_dtype); }

}  // namespace gradledger
