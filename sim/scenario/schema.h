// The scenario schema, built in, and validation against it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"

namespace gradledger {

// scenarios/scenario.schema.json as it was at build time.
std::string_view scenario_schema_text();
const nlohmann::json& scenario_schema();

// Everything in `document` that the schema does not admit: where, what was found, what would be right. Patterns and repeated entries are not
// looked at: scenario/parse.cpp does.
std::vector<InputError> check_against_schema(const nlohmann::json& document);

// The same of a value and the part of the schema that a pointer into the schema names; errors point below `where`.
std::vector<InputError> all_against_part(const std::string& schema_pointer, const nlohmann::json& value, const std::string& where);
// The first of them.
std::optional<InputError> check_against_part(const std::string& schema_pointer, const nlohmann::json& value, const std::string& where);

}  // namespace gradledger
