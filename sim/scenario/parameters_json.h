// The parameters of a scenario as JSON, and back.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/error_list.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// Whether a name can go to terminals, into tables and commands: no control characters.
bool printable(const std::string& name);

// Precondition: `parameters` passed the schema. A file of shapes is looked for in `directory`. What ranks cut becomes its parts, as many as the groups of
// `laid` have ranks; null: those are not known, and nothing is cut. Errors carry pointers below /parameters.
std::vector<Parameter> parameters_from_json(const nlohmann::json& parameters, const std::filesystem::path& directory, const Scenario* laid, ErrorList& errors);

// Those of a published model by its name, all others one by one: what came out of a file of shapes needs the file no more.
nlohmann::ordered_json parameters_to_json(const std::vector<Parameter>& parameters);

}  // namespace gradledger
