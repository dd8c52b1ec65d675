// /engine of a scenario as JSON, and back: framework, release, configuration, optimizer and its groups, parallel sizes.
#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// Precondition: `engine` passed the schema. Errors carry pointers below /engine.
Result<EngineConfig> engine_from_json(const nlohmann::json& engine, std::uint32_t world_size, const std::vector<Parameter>& parameters, ConfigReaders readers);

nlohmann::ordered_json engine_to_json(const EngineConfig& engine, const std::vector<Parameter>& parameters);

}  // namespace gradledger
