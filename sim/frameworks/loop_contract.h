// The contract of a loop that owns its loss, its step and its zero_grad, as wrappers of a model leave it: nothing divides by the number of micro-batches,
// and every step() updates.
#pragma once

#include "sim/scenario/contract.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// windows_are_stated: of a framework whose windows nobody documents.
Contract loop_contract(const Scenario& scenario, bool windows_are_stated = false);

}  // namespace gradledger
