// Findings that a team knows of and has accepted until a day.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/result.h"

namespace gradledger::verbs {

struct AcceptedFinding {
  std::string scenario, finding;  // by name and class
  std::string reason;
  std::string expires;  // "2027-01-31", the last day on which it is accepted
  bool expired = false;
};

struct Baseline {
  std::vector<AcceptedFinding> accepted;
};

// Whether a text is a day of the calendar, as 2027-01-31.
bool is_date(std::string_view text);

// today: as a date. Errors carry a JSON pointer.
Result<Baseline> read_baseline(const std::filesystem::path& path, const std::string& today);

}  // namespace gradledger::verbs
