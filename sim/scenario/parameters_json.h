// The parameters of a scenario as JSON, and back.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/error_list.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// Whether a name can go to terminals, into tables and commands: no control characters.
bool printable(const std::string& name);

// Precondition: `parameters` passed the schema. Errors carry pointers below /parameters.
std::vector<Parameter> parameters_from_json(const nlohmann::json& parameters, ErrorList& errors);

nlohmann::ordered_json parameters_to_json(const std::vector<Parameter>& parameters);

}  // namespace gradledger
