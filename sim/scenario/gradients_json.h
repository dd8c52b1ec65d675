// The gradients section between JSON and Gradients. Precondition: the JSON passed the schema.
#pragma once

#include <filesystem>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// `scenario` knows its world and its parameters already; `directory` is where a file of values is looked for. Errors point into
// /gradients, or name the file and point into it.
Result<Gradients> gradients_from_json(const nlohmann::json& gradients, const Scenario& scenario, const std::filesystem::path& directory);

}  // namespace gradledger
