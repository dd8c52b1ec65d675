// Options of fully_shard from JSON and back; the part of the schema is /definitions/fsdp2_config.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/frameworks/torch/fsdp2/config.h"

namespace gradledger::torch::fully_shard {

// Errors: keys and values that are not its own, or do not fit each other, by their pointers.
Result<Fsdp2Config> fsdp2_config_from_json(const nlohmann::json& object, const std::string& where);
nlohmann::ordered_json fsdp2_config_to_json(const Fsdp2Config& config);

}  // namespace gradledger::torch::fully_shard
