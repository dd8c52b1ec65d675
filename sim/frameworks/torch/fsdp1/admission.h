// What FullyShardedDataParallel refuses at initialisation, and what is not modelled of it.
#pragma once

#include <optional>

#include "sim/base/result.h"
#include "sim/frameworks/torch/fsdp1/config.h"
#include "sim/scenario/scenario.h"

namespace gradledger::torch::flat_sharded {

// Nothing where the engine serves the scenario. Pointers are those of a scenario.
std::optional<InputError> fsdp1_refusal(const Scenario& scenario, const Fsdp1Config& config);

// What is replayed from recordings, and refused in scenarios: the contract has no words for it.
std::optional<InputError> not_judged(const Scenario& scenario);

}  // namespace gradledger::torch::flat_sharded
