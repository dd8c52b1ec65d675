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
  if (setup->instances() > 1 && !setup->behaviour.norm_of_instance) setup->groups.of_instance = {0, RankList::every(0, 1, context.scenario->world_size)};
  setup->neighbours = PipelineNeighbours(setup->groups.pipeline.ranks, context.rank);
  return setup;
}

}  // namespace gradledger::megatron
