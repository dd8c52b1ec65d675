// The scenario schema, built in, and validation against it.
#pragma once

#include <optional>
#include <string_view>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"

namespace gradledger {

// scenarios/scenario.schema.json as it was at build time.
std::string_view scenario_schema_text();
const nlohmann::json& scenario_schema();

// The first thing in `document` that the schema does not admit, deepest first: where, what was found, what would be right.
std::optional<InputError> check_against_schema(const nlohmann::json& document);

}  // namespace gradledger
