// Values of the searches. Seconds are what a clock said; everything else follows from the command.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/finding.h"
#include "sim/scenario/scenario.h"

namespace gradledger::report {

// A class of findings, on an engine, in a shape.
struct FoundRow {
  std::string status;  // of a campaign: "new", "found again" (another one wrote it meanwhile), "still there", "gone", "not taken"
  std::string finding, engine, shape;
  std::uint32_t events = 0;
  bool minimal = false;
  std::uint64_t number = 0, alike = 1;  // its case; findings that came to the same shape
  ref::Blame blame;
  std::string sentence;
  std::string file;  // of a campaign; empty: it could not be written
  Scenario scenario;
  std::string again;  // the command that draws it again, where it has no file
  std::uint64_t seed = 0;
  std::optional<Finding> detail;  // of the scenario; none where nothing was found

  bool gone() const { return status == "gone"; }
  bool not_taken() const { return status == "not taken"; }  // why is its sentence
};

// A case that the simulator or the oracle could not run.
struct BrokenCase {
  std::uint64_t number = 0;
  std::string what, command;  // command: draws it again
  Scenario scenario;
};

// Rows come before it, each as it is found. What found says of `alike` is right here alone.
struct FuzzReport {
  std::string command, shard;
  std::vector<FoundRow> found;
  std::vector<BrokenCase> broken;
  std::uint64_t cases = 0, events = 0, rank_events = 0, operations = 0, compared = 0, suspicious = 0, judged = 0, reruns = 0;
  std::uint64_t not_run = 0;                  // of the cases: a real framework, or its driver, does not take them
  std::optional<std::string> nondeterminism;  // where two runs of one case parted
  std::optional<std::uint32_t> canary;        // cases until it was found
  std::string ended_by;                       // "--time", "SIGINT", "SIGTERM", "standard output"; empty: it has taken all of its cases
  std::uint64_t next = 0;                     // the first case that is left, where some are
  std::uint64_t cases_before = 0;             // of the cases: before it was resumed
  double seconds = 0;                         // without what came before
  bool of_shards = false;                     // other processes ran the cases, and only they can go on
};

// A script on which two sides apply different gradients.
struct DifferenceRow {
  std::string one, other;
  std::uint64_t number = 0;
  std::string shape, text;
  std::vector<std::string> files;
};

struct DifferSummary {
  std::string command;
  std::uint64_t cases = 0, compared = 0, differing = 0, unlike = 0;
  std::optional<std::uint32_t> canary;
  std::string ended_by;  // as of a campaign
};

// The heading of a hunt, before the first of its rows.
struct HuntHead {
  std::string command;
};

// A known defect, looked for from nothing.
struct HuntRow {
  std::string entry, title, as_of, finding, shape;
  bool found = false;
  std::uint32_t cases = 0;
  double seconds = 0;
  std::size_t events = 0, events_known = 0;  // of the smallest script, and of the shortest known one
};

struct HuntSummary {
  std::size_t rows = 0, found = 0, of_loops = 0;
  long events_above_known = 0;  // in the median
};

// All sequences of events of one engine, up to a length.
struct ExploreReport {
  std::string engine, as_of;
  std::vector<FoundRow> found;
  bool complete = false, symmetric = false;
  std::uint32_t length = 0, depth = 0;
  std::uint64_t states = 0, transitions = 0, merged = 0, mirrored = 0, refused = 0, undocumented = 0, wrong = 0, compared = 0;
  std::uint64_t not_run = 0;  // sequences that a real framework, or its driver, does not take
  double seconds = 0;
};

// What one order of the streams leaves behind.
struct OrderOutcome {
  std::uint64_t values = 0, memory = 0;  // hashes
  std::string order;                     // "0:compute 0:communication 1:compute": rank and stream of each step
};

// All orders of the streams of one script.
struct OrdersReport {
  std::string scenario, agreement;
  bool complete = false, every_choice = false, deadlock = false, mismatch = false, receives_pass = false;
  std::uint64_t states = 0, transitions = 0, rank_states = 0, depth = 0, left_out = 0, outcomes = 0, outcomes_in_values = 0;
  std::vector<RaceRecord> races;
  std::vector<OrderOutcome> witnesses;
  double seconds = 0;
};

}  // namespace gradledger::report
