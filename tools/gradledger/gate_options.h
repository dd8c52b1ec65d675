// gradledger gate: its own options.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "tools/gradledger/options.h"

namespace gradledger::tool {

struct GateVerb {
  std::string only;            // -k: an expression over paths and names; empty: all
  std::string shard = "0/1";   // of gates that share the scenarios
  bool first_failure = false;  // -x
  bool last_failed = false;    // those that failed the last time, if any did
  std::string state = ".gradledger/last-failed";
  std::uint32_t durations = 0;            // so many of the slowest are told
  std::optional<std::uint64_t> budget_s;  // no scenario begins after
  std::string baseline;                   // file of accepted findings
  std::string today;                      // as a date; empty: the system's
  bool update = false;                    // write what is reported into the files
  bool allow_left_out = false;            // what was left out of a folder does not fail the gate
};

// Precondition: the options of mutants and of a run are there.
void add_gate_options(CLI::App* gate, Options& options, GateVerb& verb);

}  // namespace gradledger::tool
