// The contract of a loop around fully_shard.
#pragma once

#include "sim/frameworks/torch/fsdp2/behaviour.h"
#include "sim/frameworks/torch/fsdp2/config.h"
#include "sim/scenario/contract.h"
#include "sim/scenario/scenario.h"

namespace gradledger::torch::fully_shard {

// Of a release: what its documentation says of dtypes.
Contract fsdp2_contract(const Scenario& scenario, const Fsdp2Config& config, const Behaviour& behaviour);

}  // namespace gradledger::torch::fully_shard
