// What Megatron-FSDP documents, as a contract; from its README and its docstrings, not from the engine.
#pragma once

#include "sim/frameworks/megatron_fsdp/config.h"
#include "sim/scenario/contract.h"
#include "sim/scenario/scenario.h"

namespace gradledger::megatron_fsdp {

Contract megatron_fsdp_contract(const Scenario& scenario, const MegatronFsdpConfig& config);

}  // namespace gradledger::megatron_fsdp
