// MegatronConfig between JSON and its value.
#pragma once

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/frameworks/megatron/config.h"

namespace gradledger::megatron {

// `where` is the pointer of the object. Errors: an unknown key, a value of another type or out of its range.
Result<MegatronConfig> megatron_config_from_json(const nlohmann::json& json, const std::string& where);
// Without what is as by default.
nlohmann::ordered_json megatron_config_to_json(const MegatronConfig& config);

}  // namespace gradledger::megatron
