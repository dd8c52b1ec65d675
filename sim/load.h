// Scenario files to scenarios that can run: parsed, and served by an engine.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "sim/base/result.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/timeline.h"

namespace gradledger {

// The script unrolled under the contract that framework, configuration, release and scenario make together. Errors: an unknown release or
// change, and those of unroll().
Result<Timeline> make_timeline(const Scenario& scenario);

// Whether some engine serves the scenario: release and switches known, configuration not refused by the framework, buffers in
// `expect` known.
std::optional<InputError> admission_error(const Scenario& scenario);

// Parse, without asking whether an engine here serves it: a real framework may take what no model does.
Result<Scenario> parse_whole_scenario(std::string_view text, const std::filesystem::path& directory);

// Parse and admit. load_scenario names the file in its errors.
Result<Scenario> read_scenario(std::string_view text, const std::filesystem::path& directory);
Result<Scenario> load_scenario(const std::filesystem::path& path);

}  // namespace gradledger
