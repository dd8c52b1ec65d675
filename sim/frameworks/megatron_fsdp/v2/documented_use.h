// Rules of use that the second version documents.
#pragma once

#include <span>

#include "sim/frameworks/framework.h"
#include "sim/frameworks/megatron_fsdp/v2/config.h"

namespace gradledger::megatron_fsdp::v2 {

std::span<const UseRule> v2_use_rules();
UseReport v2_use_of(const Scenario& scenario, const Timeline& timeline, const V2Config& config);

}  // namespace gradledger::megatron_fsdp::v2
