// What PyTorch documents of the use of FullyShardedDataParallel, and where a script departs from it.
#pragma once

#include <span>

#include "sim/frameworks/framework.h"
#include "sim/frameworks/torch/fsdp1/config.h"

namespace gradledger::torch::flat_sharded {

std::span<const UseRule> fsdp1_use_rules();
// Precondition: the scenario was admitted, and the timeline is its own.
UseReport fsdp1_use_of(const Scenario& scenario, const Timeline& timeline, const Fsdp1Config& config);

}  // namespace gradledger::torch::flat_sharded
