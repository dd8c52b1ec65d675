// What of the second version is not modelled.
#pragma once

#include <optional>

#include "sim/base/result.h"
#include "sim/frameworks/megatron_fsdp/v2/config.h"
#include "sim/scenario/scenario.h"

namespace gradledger::megatron_fsdp::v2 {

std::optional<InputError> v2_refusal(const Scenario& scenario, const V2Config& config);

}  // namespace gradledger::megatron_fsdp::v2
