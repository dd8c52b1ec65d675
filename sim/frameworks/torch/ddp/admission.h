// What DistributedDataParallel is not given: what PyTorch refuses, and what is not modelled.
#pragma once

#include <optional>

#include "sim/base/result.h"
#include "sim/frameworks/torch/ddp/config.h"
#include "sim/scenario/scenario.h"

namespace gradledger::torch {

// None: the engine serves the scenario. Errors carry the pointer of what stands in the way.
std::optional<InputError> ddp_refusal(const Scenario& scenario, const DdpConfig& config);

}  // namespace gradledger::torch
