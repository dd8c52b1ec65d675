// What DeepSpeed documents of a configuration at a release, as a contract. Written from the documentation, not from the engines.
#pragma once

#include "sim/base/result.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/scenario/contract.h"
#include "sim/scenario/scenario.h"

namespace gradledger::deepspeed {

// When a step updates: the counter of step() calls, or every call where accumulation is not managed; a pipeline counts its micro-batches.
BoundaryRule boundary_rule(const DeepSpeedConfig& config, bool pipeline = false);

// Precondition: the layout of the scenario is right. Errors: a release or change that is not known.
Result<Contract> resolve_contract(const Scenario& scenario);

}  // namespace gradledger::deepspeed
