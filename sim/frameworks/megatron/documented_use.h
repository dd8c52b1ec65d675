// What Megatron-Core documents of a loop around it, as rules, and where a script leaves them.
#pragma once

#include <span>

#include "sim/frameworks/framework.h"
#include "sim/frameworks/megatron/config.h"

namespace gradledger::megatron {

std::span<const UseRule> megatron_use_rules();

// Precondition: the scenario was admitted, and the timeline is its own.
UseReport megatron_use_of(const Scenario& scenario, const Timeline& timeline, const MegatronConfig& config);

}  // namespace gradledger::megatron
