// The script of a scenario from JSON.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/error_list.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/script.h"

namespace gradledger {

// Events that say nothing beside their ranks, by their keys.
inline constexpr std::array<std::pair<const char*, ScriptKind>, 5> bare_events{
    {{"forward", ScriptKind::forward}, {"finalize", ScriptKind::finalize}, {"save", ScriptKind::save}, {"restore", ScriptKind::restore}, {"unscale", ScriptKind::unscale}}};

// Precondition: `script` is an array that passed the schema but at `wrong`, pointers below /script; `scenario` has its world and parameters. Entries
// that are wrong themselves are left out, those inside of them too unless they alone are. Errors: ranks and names that are not the scenario's, entries
// that contradict themselves.
std::vector<ScriptItem> script_from_json(const nlohmann::json& script, const Scenario& scenario, const ConfigReader& framework, const std::vector<std::string>& wrong,
                                         ErrorList& errors);

}  // namespace gradledger
