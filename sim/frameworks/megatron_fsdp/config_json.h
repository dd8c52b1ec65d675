// The configuration as scenarios write it.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "sim/base/result.h"
#include "sim/frameworks/megatron_fsdp/config.h"

namespace gradledger::megatron_fsdp {

// Errors: what the schema refuses, or values that do not fit each other, by their pointers.
Result<MegatronFsdpConfig> megatron_fsdp_config_from_json(const nlohmann::json& object, const std::string& where);

}  // namespace gradledger::megatron_fsdp
