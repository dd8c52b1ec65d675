// Options of FullyShardedDataParallel from JSON and back; the part of the schema is /definitions/fsdp1_config.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/frameworks/torch/fsdp1/config.h"

namespace gradledger::torch::flat_sharded {

// Errors: keys and values that are not its own, or do not fit each other, by their pointers.
Result<Fsdp1Config> fsdp1_config_from_json(const nlohmann::json& object, const std::string& where);
nlohmann::ordered_json fsdp1_config_to_json(const Fsdp1Config& config);

}  // namespace gradledger::torch::flat_sharded
