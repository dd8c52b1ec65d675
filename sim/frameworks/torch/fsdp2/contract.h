// The contract of a loop around fully_shard.
#pragma once

#include "sim/frameworks/torch/fsdp2/config.h"
#include "sim/scenario/contract.h"
#include "sim/scenario/scenario.h"

namespace gradledger::torch::fully_shard {

Contract fsdp2_contract(const Scenario& scenario, const Fsdp2Config& config);

}  // namespace gradledger::torch::fully_shard
