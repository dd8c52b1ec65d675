// Recordings of real framework runs as scenarios, and what the framework did in them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/result.h"
#include "sim/scenario/scenario.h"
#include "conformance/run.h"

namespace gradledger::conform {

struct Recording {
  std::string name;
  std::string version;
  Scenario scenario;
  std::vector<std::vector<RecordedMoment>> ranks;  // [rank][operation]
  std::vector<std::vector<std::uint32_t>> events;  // [rank][operation]: the event that stands for it; never: it changes nothing there
  std::vector<bool> reads;                         // [operation]: it asks the framework for values, by collectives of its own
  std::string refusal;                             // the framework refused the configuration; ranks are empty
  std::string left_out;                            // what of the run is not judged, and why; empty: all of it is

  bool operator==(const Recording&) const = default;
};

// [rank][event]: the operation that an event stands for; never: it stands for none there.
std::vector<std::vector<std::uint32_t>> operations_by_event(const Recording& recording, std::size_t events);

inline constexpr const char* inexpressible = "cannot be expressed";

// Errors: an operation is malformed, or the run cannot be expressed as a scenario (where = inexpressible).
Result<Recording> express(const RecordedRun& run);

// Hands every run of a file to `use`, with its place ("FILE:3"). Errors: of for_each_line, JSON and read_run, with their place; and the first
// that `use` returns.
using RunUse = std::function<std::optional<InputError>(RecordedRun run, const std::string& where)>;
std::optional<InputError> for_each_run(const std::string& path, const RunUse& use);

}  // namespace gradledger::conform
