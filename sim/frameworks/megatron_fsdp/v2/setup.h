// What follows from the scenario alone, for one rank.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/frameworks/megatron_fsdp/layout.h"
#include "sim/frameworks/megatron_fsdp/v2/behaviour.h"
#include "sim/frameworks/megatron_fsdp/v2/config.h"

namespace gradledger::megatron_fsdp::v2 {

inline std::uint32_t owners_of(const Scenario& scenario, const V2Config& config) { return shard_size(scenario, config.mesh); }

// A buffer's size is a multiple of all ranks, also where copies of a shard are kept: layout.py: GlobalLayout.build, at 0.6.1
inline Layout layout_of(const Scenario& scenario, const V2Config& config, std::uint32_t rank) {
  return layout_over(scenario, {config.wrap, &config.units, &config.mesh, owners_of(scenario, config), scenario.world_size}, rank);
}

struct Setup {
  EngineContext context;
  const V2Config* config = nullptr;
  Behaviour behaviour;
  Layout layout;

  const Scenario& scenario() const { return *context.scenario; }
  const Parameter& parameter(std::uint32_t p) const { return context.scenario->parameters[p]; }
  std::uint32_t parameter_count() const { return static_cast<std::uint32_t>(context.scenario->parameters.size()); }
  Dtype grads_dtype(const ParameterGroup& group) const { return config->mixed_precision.main_grads_dtype.value_or(group.dtype); }
  Dtype wire_dtype(const ParameterGroup& group) const {
    return behaviour.reads_grad_comm_dtype ? config->mixed_precision.grad_comm_dtype.value_or(grads_dtype(group)) : group.dtype;
  }
};

}  // namespace gradledger::megatron_fsdp::v2
