// What PyTorch documents of a loop around DistributedDataParallel, as rules, and where a script leaves them.
#pragma once

#include <span>

#include "sim/frameworks/framework.h"
#include "sim/frameworks/torch/ddp/config.h"

namespace gradledger::torch {

std::span<const UseRule> ddp_use_rules();

// Precondition: the scenario was admitted, and the timeline is its own.
UseReport ddp_use_of(const Scenario& scenario, const Timeline& timeline, const DdpConfig& config);

}  // namespace gradledger::torch
