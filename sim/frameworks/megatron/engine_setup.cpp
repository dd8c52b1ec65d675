#include "sim/frameworks/megatron/engine_setup.h"

#include <memory>

namespace gradledger::megatron {

SharedSetup make_setup(const EngineContext& context, const WorldGroups& groups, const MegatronConfig& config, Machine machine) {
  auto setup = std::make_shared<Setup>();
  setup->context = context;
  setup->config = &config;
  setup->behaviour = behaviour_of(context.scenario->engine.as_of).value();
  setup->machine = machine;
  setup->groups = groups.of(setup->instances(), context.rank);
  setup->neighbours = PipelineNeighbours(setup->groups.pipeline.ranks, context.rank);
  return setup;
}

}  // namespace gradledger::megatron
