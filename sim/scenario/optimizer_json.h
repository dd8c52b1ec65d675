// The base optimizer as JSON. Precondition: the JSON passed the schema.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/scenario/contract.h"

namespace gradledger {

// From {"type", "lr", ...}, or DeepSpeed's {"type", "params": {"lr", ...}}. Errors: keys that do not fit the type.
Result<OptimizerConfig> optimizer_from_json(const nlohmann::json& json, const std::string& where);
nlohmann::ordered_json optimizer_to_json(const OptimizerConfig& optimizer);

}  // namespace gradledger
