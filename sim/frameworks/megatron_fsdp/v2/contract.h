// What the second version documents, as a contract; from its docstrings and those of MixedPrecisionPolicy, not from the engine.
#pragma once

#include "sim/frameworks/megatron_fsdp/v2/config.h"
#include "sim/scenario/contract.h"
#include "sim/scenario/scenario.h"

namespace gradledger::megatron_fsdp::v2 {

Contract v2_contract(const Scenario& scenario, const V2Config& config);

}  // namespace gradledger::megatron_fsdp::v2
