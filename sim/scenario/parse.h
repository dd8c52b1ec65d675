// Scenario files: parse, serialise. Parsing what was serialised gives the same value.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// `directory` is where a gradients file is looked for. Everything that can be wrong is one error with a JSON pointer: syntax, unknown
// keys, types, limits, impossible worlds. Nothing of the size that a file asks for is allocated before that. Whether an engine serves
// the configuration is for sim/load.h.
Result<Scenario> parse_scenario(std::string_view text, const std::filesystem::path& directory, ConfigReaders readers);

// Canonical: fixed key order, defaults left out.
nlohmann::ordered_json to_json(const Scenario& scenario);
std::string serialise(const Scenario& scenario);

}  // namespace gradledger
