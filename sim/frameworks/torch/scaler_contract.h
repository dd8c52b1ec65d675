// What a GradScaler adds to the contract of a loop.
#pragma once

#include <optional>

#include "sim/frameworks/torch/grad_scaler.h"
#include "sim/scenario/contract.h"

namespace gradledger::torch {

// Steps that are skipped, and a scale that moves.
void add_scaler(const std::optional<GradScalerConfig>& scaler, Contract& contract);
// The other way round, for searches.
GradScalerConfig scaler_of(const LossScalePolicy& policy);

}  // namespace gradledger::torch
