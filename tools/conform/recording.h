// Recordings of real framework runs (JSON lines) as scenarios, and what the framework did in them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/scenario/scenario.h"

namespace gradledger::conform {

// What one rank held and reported after one operation.
struct RecordedMoment {
  std::string operation;                               // "fb 2", "step"
  std::map<std::string, std::vector<double>> buffers;  // raw values by the framework's name
  std::vector<std::vector<double>> parameters;         // after a step
  std::optional<double> norm;                          // reported by a step
  std::string error;                                   // "TypeError: ..." where the operation raised
};

struct Recording {
  std::string name;
  std::string version;
  Scenario scenario;
  std::vector<std::vector<RecordedMoment>> ranks;  // [rank][operation]
  std::string refusal;                             // the framework refused the configuration; ranks are empty
};

// One line. Errors: the line is not a recording (where = ""), or it cannot be expressed as a scenario (where = "cannot be expressed").
Result<Recording> read_recording(const nlohmann::json& line);

inline constexpr const char* inexpressible = "cannot be expressed";

}  // namespace gradledger::conform
