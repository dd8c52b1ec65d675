// What Megatron-FSDP refuses, and what of it is not modelled.
#pragma once

#include <optional>

#include "sim/base/result.h"
#include "sim/frameworks/megatron_fsdp/config.h"
#include "sim/scenario/scenario.h"

namespace gradledger::megatron_fsdp {

std::optional<InputError> megatron_fsdp_refusal(const Scenario& scenario, const MegatronFsdpConfig& config);

// What the engine serves, and recordings hold it to, but the oracle has no contract for.
std::optional<InputError> not_judged(const Scenario& scenario);

}  // namespace gradledger::megatron_fsdp
