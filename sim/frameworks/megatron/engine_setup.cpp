#include "sim/frameworks/megatron/engine_setup.h"

#include <memory>

namespace gradledger::megatron {

SharedSetup make_setup(const EngineContext& context, const MegatronConfig& config, Machine machine) {
  auto setup = std::make_shared<Setup>();
  setup->context = context;
  setup->config = &config;
  setup->behaviour = behaviour_of(context.scenario->engine.as_of).value();
  setup->machine = machine;
  setup->groups = parallel_groups(*context.scenario, setup->instances(), context.rank);
  return setup;
}

}  // namespace gradledger::megatron
