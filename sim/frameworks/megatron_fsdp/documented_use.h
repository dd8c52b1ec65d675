// Rules of use that Megatron-FSDP documents.
#pragma once

#include <span>

#include "sim/frameworks/framework.h"
#include "sim/frameworks/megatron_fsdp/config.h"

namespace gradledger::megatron_fsdp {

std::span<const UseRule> megatron_fsdp_use_rules();
UseReport megatron_fsdp_use_of(const Scenario& scenario, const Timeline& timeline, const MegatronFsdpConfig& config);

}  // namespace gradledger::megatron_fsdp
