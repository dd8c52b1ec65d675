// The contract of a loop that owns its loss, its step and its zero_grad, as PyTorch's own wrappers leave it: nothing divides by the number of
// micro-batches, and every step() updates.
#pragma once

#include <optional>

#include "sim/frameworks/torch/grad_scaler.h"
#include "sim/scenario/contract.h"
#include "sim/scenario/scenario.h"

namespace gradledger::torch {

// windows_are_stated: of a framework whose windows nobody documents.
Contract loop_contract(const Scenario& scenario, bool windows_are_stated = false);
// What a GradScaler adds: steps that are skipped, and a scale that moves.
void add_scaler(const std::optional<GradScalerConfig>& scaler, Contract& contract);
// The other way round, for searches.
GradScalerConfig scaler_of(const LossScalePolicy& policy);

}  // namespace gradledger::torch
