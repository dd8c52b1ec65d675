// What the parts of an engine share of a rank, and never change.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "sim/engine/engine.h"
#include "sim/engine/pipeline_neighbours.h"
#include "sim/frameworks/megatron/behaviour.h"
#include "sim/frameworks/megatron/config.h"
#include "sim/frameworks/megatron/parallel_groups.h"

namespace gradledger::megatron {

// What runs the operations. Recordings were made on CPUs, whose asynchronous reductions take what is there when they are issued and deliver it at the
// wait, and whose norms are added up in lanes of fp32. On a device a reduction works in place, any time before the wait.
enum class Machine : std::uint8_t { device, recorded_cpu };

struct Setup {
  EngineContext context;
  const MegatronConfig* config = nullptr;
  Behaviour behaviour;
  ParallelGroups groups;
  PipelineNeighbours neighbours;
  Machine machine = Machine::device;

  const Scenario& scenario() const { return *context.scenario; }
  const Parameter& parameter(std::uint32_t p) const { return context.scenario->parameters[p]; }
  std::uint32_t parameter_count() const { return static_cast<std::uint32_t>(context.scenario->parameters.size()); }
  Attributes attributes(std::uint32_t p) const { return config->attributes_of(parameter(p).name); }
  std::uint32_t stages() const { return groups.pipeline.size(); }
  std::uint32_t chunk_of(std::uint32_t p) const { return config->chunk_of(parameter(p).name); }
  std::uint32_t instances() const { return config->ddp.num_distributed_optimizer_instances; }

  // Whether the rank's part of the model has the parameter.
  bool holds(std::uint32_t p) const {
    const Parameter& it = parameter(p);
    if (it.tied_to || (it.part && place_in(*context.scenario, it.part->over, context.rank) != it.part->number)) return false;
    if (attributes(p).shared_embedding) return groups.first_stage() || groups.last_stage();
    if (it.pipeline_stage != groups.stage) return false;
    return !it.expert || groups.expert.index_of(context.rank) == *it.expert % groups.expert.size();
  }
};

using SharedSetup = std::shared_ptr<const Setup>;

}  // namespace gradledger::megatron
