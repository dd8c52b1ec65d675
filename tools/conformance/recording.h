// Recordings of real framework runs as scenarios, and what the framework did in them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/result.h"
#include "sim/scenario/scenario.h"
#include "tools/conformance/run.h"

namespace gradledger::conform {

struct Recording {
  std::string name;
  std::string version;
  Scenario scenario;
  std::vector<std::vector<RecordedMoment>> ranks;  // [rank][operation]
  std::string refusal;                             // the framework refused the configuration; ranks are empty
  std::string left_out;                            // what of the run is not judged, and why; empty: all of it is

  bool operator==(const Recording&) const = default;
};

inline constexpr const char* inexpressible = "cannot be expressed";

// Errors: an operation is malformed, or the run cannot be expressed as a scenario (where = inexpressible).
Result<Recording> express(const RecordedRun& run);

// Hands every run of a file to `use`, with its place ("FILE:3"). Errors: of for_each_line, JSON and read_run, with their place; and the first
// that `use` returns.
using RunUse = std::function<std::optional<InputError>(RecordedRun run, const std::string& where)>;
std::optional<InputError> for_each_run(const std::string& path, const RunUse& use);

}  // namespace gradledger::conform
