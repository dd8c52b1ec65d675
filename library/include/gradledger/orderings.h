// Scripts that nobody wrote: drawn from a seed, or all up to a length, and made small where one fails. Only what the contract says to be right is tried.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "gradledger/oracle.h"

namespace gradledger::GRADLEDGER_API {

// What scripts may be. The events are those that the wrapper overrides, as the contract has them:
//   windows    of `divide_by` micro-batches, where that is an integer above 1; else of any number up to 4
//   step       behind the last micro-batch of a window; with the contract's window "marked" behind each, and the last is to update
//   zero_grad  behind a step; anywhere, where the contract says in words what it does (`zero_grad`)
//   no_sync    around any micro-batches but the last of a window
//   boundary   false before those, true before the last; always, where the wrapper has it
// and micro-batches that leave a parameter unused, and smaller worlds.
struct Orderings {
  std::uint64_t seed = 0;
  std::uint32_t cases = 100;                 // that are drawn
  std::vector<std::uint32_t> micro_batches;  // sizes of windows, up to 4096; empty: as the contract says
  std::uint32_t windows_max = 3;             // of a script that is drawn; up to 1024
  std::uint32_t tries_max = 4000;            // judgements of the search for a smaller script
  std::uint64_t memory_limit = Options{}.memory_limit;
  std::string_view headers = GRADLEDGER_VERSION;
};

// A script that fails, as small as it gets: without any one of its events it is right, or no script of the contract.
struct Failure {
  Scenario scenario;
  Report report;
  std::string drawn;  // the script as it was drawn, in short; the same as the small one's where all were tried in order
  bool minimal = false;
};

struct OrderingsReport {
  std::uint64_t tried = 0;        // scripts that were judged
  std::uint64_t refused = 0;      // that were not run: the wrapper threw NotSupported, or no scenario file could have them
  std::uint64_t not_judged = 0;   // that left nothing to judge
  bool complete = false;          // of an exploration: every script up to the length was judged and is right, or goes on from one that is not
  std::vector<Failure> failures;  // one for each class of findings
  std::string repeat;             // in words: what was asked for

  bool clean() const { return failures.empty() && tried > 0; }
};
std::ostream& operator<<(std::ostream& out, const OrderingsReport& report);

// The scenario gives world, parameters, dtypes, contract and optimizer; its script is not read. Throws as run() does, but for
// a wrapper that threw when it was made: that is a failure, with an "engine-error". BrokenRun says by which script.
OrderingsReport check_orderings(const Scenario& scenario, const Ranks& wrapper, const Orderings& orderings = {});
OrderingsReport check_orderings(const Scenario& scenario, const Worlds& wrapper, const Orderings& orderings = {});

// Every script of up to so many events, shortest first. Throws BadInput where more sequences of events are open at once than fit in memory, 2^20.
OrderingsReport explore_orderings(const Scenario& scenario, const Ranks& wrapper, std::uint32_t events_max, const Orderings& orderings = {});
OrderingsReport explore_orderings(const Scenario& scenario, const Worlds& wrapper, std::uint32_t events_max, const Orderings& orderings = {});

}  // namespace gradledger::GRADLEDGER_API
