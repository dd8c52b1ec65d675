// What PyTorch documents of DistributedDataParallel, as a contract. Written from the documentation, not from the engine.
#pragma once

#include "sim/frameworks/torch/ddp/config.h"
#include "sim/scenario/contract.h"
#include "sim/scenario/scenario.h"

namespace gradledger::torch {

// The gradient accumulated since zero_grad, averaged over the world, in every backward whose forward ran outside of no_sync; every step() updates.
Contract ddp_contract(const Scenario& scenario, const DdpConfig& config);

}  // namespace gradledger::torch
