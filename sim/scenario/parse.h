// Scenario files: parse, serialise. Parsing what was serialised gives the same value.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/scenario/overrides.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// `directory` is where files that it names are looked for. Everything that can be wrong is an error with a JSON pointer: syntax, unknown keys, types,
// limits, impossible worlds; all are told that do not follow from each other. Nothing of the size that a file asks for is allocated before that.
// Whether an engine serves the configuration is for sim/load.h. `overrides` are put into the document. Nothing where there are errors.
std::optional<Scenario> parse_scenario(std::string_view text, const std::filesystem::path& directory, ConfigReaders readers, std::vector<Override>& overrides, ErrorList& errors);
// Likewise, of the text alone and with the first error.
Result<Scenario> parse_scenario(std::string_view text, const std::filesystem::path& directory, ConfigReaders readers);

// Canonical: fixed key order, defaults left out.
nlohmann::ordered_json to_json(const Scenario& scenario);
std::string serialise(const Scenario& scenario);

}  // namespace gradledger
