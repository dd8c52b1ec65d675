// What PyTorch documents of the use of fully_shard, and where a script departs from it.
#pragma once

#include <span>

#include "sim/frameworks/framework.h"
#include "sim/frameworks/torch/fsdp2/config.h"

namespace gradledger::torch::fully_shard {

std::span<const UseRule> fsdp2_use_rules();
// Precondition: the scenario was admitted, and the timeline is its own.
UseReport fsdp2_use_of(const Scenario& scenario, const Timeline& timeline, const Fsdp2Config& config);

}  // namespace gradledger::torch::fully_shard
