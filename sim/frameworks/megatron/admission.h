// What Megatron-Core's engine is not given: what Megatron refuses, and what is not modelled.
#pragma once

#include <optional>

#include "sim/base/result.h"
#include "sim/frameworks/megatron/config.h"
#include "sim/scenario/scenario.h"

namespace gradledger::megatron {

// None: the engine serves the scenario. Errors carry the pointer of what stands in the way.
std::optional<InputError> megatron_refusal(const Scenario& scenario, const MegatronConfig& config);

}  // namespace gradledger::megatron
