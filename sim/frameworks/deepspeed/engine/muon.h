// Muon as far as gradients are concerned: what its momentum takes in. The orthogonalization behind it (Newton-Schulz) is no linear map and is
// not modelled: the gradient stands where the update would, and nobody judges the weights that come of it.
#pragma once

#include <optional>

#include "sim/base/result.h"
#include "sim/engine/tensors.h"
#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

inline bool uses_muon(const Scenario& scenario) { return scenario.engine.optimizer.type == OptimizerType::muon; }

// Whether a gradient goes in as it came, multiplied by its loss scale. It does in every release.
inline bool momentum_keeps_scale(const Behaviour& behaviour) { return behaviour.muon_loss_scale == MuonLossScale::kept; }

// Whether a script has it anywhere.
bool has_item(const std::vector<ScriptItem>& items, ScriptKind kind);

// momentum' = keeps x momentum + (1 - keeps) x gradient / divisor, of equally many elements.
void take_into_momentum(ProgramWriter& w, TensorTable& tensors, Slice momentum, Slice gradient, double keeps, double divisor);  // original_muon.py: muon_update, at 0.19.8

namespace deepspeed {

// What DeepSpeed refuses with Muon at this release, and what is not modelled with it. None with another optimizer.
std::optional<InputError> muon_refusal(const Scenario& scenario, const Behaviour& behaviour);

}  // namespace deepspeed
}  // namespace gradledger
