// A finding as every report has it, whichever verb came upon it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ref/finding.h"
#include "sim/scenario/positions.h"

namespace gradledger::report {

// What the oracle found, and what only the scenario's file and the command know of it.
struct Finding : ref::Finding {
  std::string pointer;            // JSON pointer of the script item at which it was seen
  Position at;                    // of that item, in the scenario's file
  std::string race_command;       // of a stream-race: shows it in the values; empty where no such schedule was found
  std::uint64_t occurrences = 1;  // findings that it stands for
};

// Of what run it is.
struct FoundIn {
  std::string scenario, file, engine;   // file: empty where there is none
  std::vector<std::string> parameters;  // names; elements name them by number
  std::optional<std::uint64_t> seed;
};

// The same for what is wrong in the same way, wherever its lines, events or ranks are: sixteen digits. family: of the buffer.
std::string fingerprint(const std::string& scenario, std::string_view finding, const std::string& engine, const std::string& family);

}  // namespace gradledger::report
