// What Megatron-Core documents, as a contract. Written from the documentation, not from the engine.
#pragma once

#include "sim/frameworks/megatron/behaviour.h"
#include "sim/frameworks/megatron/config.h"
#include "sim/scenario/contract.h"
#include "sim/scenario/scenario.h"

namespace gradledger::megatron {

// Gradients accumulate from zero_grad_buffer on, and finalize_model_grads averages them over the data-parallel ranks; every step() updates.
Contract megatron_contract(const Scenario& scenario, const MegatronConfig& config, const Behaviour& behaviour);

}  // namespace gradledger::megatron
