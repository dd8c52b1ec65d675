// /engine of a scenario as JSON, and back: framework, release, configuration, optimizer and its groups, parallel sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/error_list.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// Precondition: `engine` passed the schema. What is returned has what is right: framework, release and sizes always. Sizes that it does not state are those of the
// layout, if any. Errors carry pointers below /engine.
EngineConfig engine_from_json(const nlohmann::json& engine, std::uint32_t world_size, const std::optional<RankLayout>& layout, const std::vector<Parameter>& parameters,
                              ConfigReaders readers, ErrorList& errors);

// What is wrong with its configuration, as far as that can be said where something else of it, or of the world, is wrong too.
void config_alone(const nlohmann::json& engine, ConfigReaders readers, ErrorList& errors);

nlohmann::ordered_json engine_to_json(const EngineConfig& engine, const std::vector<Parameter>& parameters);

}  // namespace gradledger
