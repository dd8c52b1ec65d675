// DeepSpeed configurations between JSON and DeepSpeedConfig. Preconditions: the JSON passed the schema.
#pragma once

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// Fills the engine configuration; `where` is the pointer of the config object. Errors: keys that do not fit each other.
Result<DeepSpeedConfig> config_from_json(const nlohmann::json& json, std::uint32_t data_parallel_ranks, const std::string& where);
nlohmann::ordered_json config_to_json(const DeepSpeedConfig& config);

// From {"type", "lr", ...}, or DeepSpeed's {"type", "params": {"lr", ...}}. Errors: keys that do not fit the type.
Result<OptimizerConfig> optimizer_from_json(const nlohmann::json& json, const std::string& where);
nlohmann::ordered_json optimizer_to_json(const OptimizerConfig& optimizer);

}  // namespace gradledger
