// The configuration of the second version as scenarios write it.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "sim/base/result.h"
#include "sim/frameworks/megatron_fsdp/v2/config.h"

namespace gradledger::megatron_fsdp::v2 {

inline constexpr const char* schema_of_config = "/definitions/megatron_fsdp_v2_config";

// Errors: what the schema refuses, or values that do not fit each other, by their pointers.
Result<V2Config> v2_config_from_json(const nlohmann::json& object, const std::string& where);

}  // namespace gradledger::megatron_fsdp::v2
