// Scenario files to scenarios that can run: parsed, and served by an engine.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "sim/base/result.h"
#include "sim/scenario/overrides.h"
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

// Parse and admit, with what is said in place of the text. Errors name the option where that is what is wrong. all: every error, in the order of
// the text; the result has the first of them.
Result<Scenario> read_scenario(std::string_view text, const std::filesystem::path& directory, const std::vector<Override>& overrides = {}, std::vector<InputError>* all = nullptr);
// Likewise; errors name the file, and are as many as are told.
Result<Scenario> load_scenario(const std::filesystem::path& path, const std::vector<Override>& overrides = {}, std::vector<InputError>* all = nullptr);

}  // namespace gradledger
