// The contract of a loop around FullyShardedDataParallel.
#pragma once

#include "sim/frameworks/torch/fsdp1/config.h"
#include "sim/scenario/contract.h"
#include "sim/scenario/scenario.h"

namespace gradledger::torch::flat_sharded {

Contract fsdp1_contract(const Scenario& scenario, const Fsdp1Config& config);

}  // namespace gradledger::torch::flat_sharded
