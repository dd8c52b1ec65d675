// What fully_shard refuses at initialisation, and what is not modelled of it.
#pragma once

#include <optional>

#include "sim/base/result.h"
#include "sim/frameworks/torch/fsdp2/config.h"
#include "sim/scenario/scenario.h"

namespace gradledger::torch::fully_shard {

// Nothing where the engine serves the scenario. Pointers are those of a scenario.
std::optional<InputError> fsdp2_refusal(const Scenario& scenario, const Fsdp2Config& config);

// What the release that the scenario asks for does not have. Precondition: the release is known.
std::optional<InputError> not_yet_there(const Scenario& scenario, const Fsdp2Config& config);

}  // namespace gradledger::torch::fully_shard
