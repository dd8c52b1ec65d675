// DeepSpeed configurations between JSON and DeepSpeedConfig. Preconditions: the JSON passed the schema.
#pragma once

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/frameworks/deepspeed/config.h"

namespace gradledger {

// Fills the engine configuration; `where` is the pointer of the config object. Errors: keys that do not fit each other.
Result<DeepSpeedConfig> config_from_json(const nlohmann::json& json, std::uint32_t data_parallel_ranks, const std::string& where);
nlohmann::ordered_json config_to_json(const DeepSpeedConfig& config);

// A configuration alone, not in a scenario, with check_against_schema's errors too, below `where`.
Result<DeepSpeedConfig> parse_deepspeed_config(const nlohmann::json& config, std::uint32_t world_size, const std::string& where);

}  // namespace gradledger
