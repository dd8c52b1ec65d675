// The setup of a rank's engine: what follows from the scenario and the release.
#pragma once

#include "sim/frameworks/megatron/setup.h"

namespace gradledger::megatron {

// Precondition: megatron_refusal() has none. The configuration outlives the setup.
// groups: of the scenario.
SharedSetup make_setup(const EngineContext& context, const WorldGroups& groups, const MegatronConfig& config, Machine machine);

}  // namespace gradledger::megatron
