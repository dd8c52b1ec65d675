// DdpConfig between JSON and its value. Keys are those of DistributedDataParallel's constructor, and of what a loop hangs onto it.
#pragma once

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/frameworks/torch/ddp/config.h"

namespace gradledger::torch {

// `where` is the pointer of the object. Errors: an unknown key, a value of another type or out of its range.
Result<DdpConfig> ddp_config_from_json(const nlohmann::json& json, const std::string& where);
// Without what is as by default.
nlohmann::ordered_json ddp_config_to_json(const DdpConfig& config);

}  // namespace gradledger::torch
