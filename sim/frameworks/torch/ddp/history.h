// What earlier releases of DistributedDataParallel do not have, and what they refuse.
#pragma once

#include <cstdint>

#include "sim/base/result.h"
#include "sim/frameworks/torch/ddp/config.h"
#include "sim/frameworks/torch/history/wrapper_history.h"

namespace gradledger::torch {

const WrapperHistory& ddp_history();

// What the release that the scenario asks for does not have, or refuses. Precondition: the release is known.
std::optional<InputError> not_yet_there(const Scenario& scenario, const DdpConfig& config);

}  // namespace gradledger::torch
