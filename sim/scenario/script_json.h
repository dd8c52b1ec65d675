// The script of a scenario from JSON.
#pragma once

#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// Precondition: `script` passed the schema; `scenario` has its world and parameters. Errors: ranks and names that are not the scenario's,
// entries that contradict themselves.
Result<std::vector<ScriptItem>> script_from_json(const nlohmann::json& script, const Scenario& scenario, const ConfigReader& framework);

}  // namespace gradledger
