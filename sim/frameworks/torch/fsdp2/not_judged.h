// What the engine serves, and recordings hold it to, but the oracle has no contract for.
#pragma once

#include <optional>

#include "sim/base/result.h"
#include "sim/frameworks/torch/fsdp2/config.h"
#include "sim/scenario/scenario.h"

namespace gradledger::torch::fully_shard {

std::optional<InputError> not_judged(const Scenario& scenario, const Fsdp2Config& config);

}  // namespace gradledger::torch::fully_shard
