// What follows from the scenario alone, for one rank.
#pragma once

#include <cstdint>

#include "sim/engine/engine.h"
#include "sim/frameworks/megatron_fsdp/behaviour.h"
#include "sim/frameworks/megatron_fsdp/config.h"
#include "sim/frameworks/megatron_fsdp/layout.h"

namespace gradledger::megatron_fsdp {

struct Setup {
  EngineContext context;
  const MegatronFsdpConfig* config = nullptr;
  Behaviour behaviour;
  Layout layout;

  const Scenario& scenario() const { return *context.scenario; }
  const Parameter& parameter(std::uint32_t p) const { return context.scenario->parameters[p]; }
  std::uint32_t parameter_count() const { return static_cast<std::uint32_t>(context.scenario->parameters.size()); }
  Strategy strategy() const { return config->zero_dp_strategy; }
  OptimizerConfig optimizer_of(std::uint32_t p) const {
    const EngineConfig& engine = context.scenario->engine;
    return engine.param_groups.empty() || !config->fully_shard_optimizer || behaviour.keeps_param_groups ? engine.optimizer_of(p) : engine.optimizer;
  }
  Dtype grads_dtype(const ParameterGroup& group) const { return config->mixed_precision.main_grads_dtype.value_or(group.dtype); }
};

}  // namespace gradledger::megatron_fsdp
