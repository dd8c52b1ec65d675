// The oracle: decides which passes a scenario needs, feeds a producer, and turns what it sees into a verdict.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ref/agreement.h"
#include "ref/coverage.h"
#include "ref/facts.h"
#include "ref/finding.h"
#include "ref/judge.h"
#include "ref/ledger.h"
#include "ref/probes.h"
#include "sim/base/limits.h"
#include "sim/trace/producer.h"

namespace gradledger::ref {

// Which runs a verdict rests on, of a producer that can show weights; others run on numbers alone.
enum class Executor : std::uint8_t {
  both,      // weights from one symbolic run, values from runs on numbers
  numeric,   // runs on numbers, weights too
  symbolic,  // the symbolic run alone: what only numbers show is not judged, and Verdict::left_out says so
};

struct OracleOptions {
  Schedule schedule;                // of the primary pass
  std::uint64_t seed = 0;           // of probes and random data
  bool full_ledger = false;         // decode the applied gradient of every step, balanced or not
  TraceSink* watch = nullptr;       // sees the primary pass too
  bool check_streams = true;        // look for races in the primary pass
  std::uint32_t decode_max = 1024;  // contributions decoded at most; a run on weights needs no limit
  std::uint32_t alone_max = 128;    // likewise where few runs leave weights open and each contribution has a run of its own then
  Executor executor = Executor::both;
  std::uint64_t ledger_cells_max = limits::ledger_cells_max;  // weights taken apart
  std::uint64_t listed_cells_max = limits::ledger_cells_max;  // weights listed of applied gradients that balance
};

// One row for display: elements of a rank's share of the gradient that a step applied.
struct AppliedRow {
  std::uint32_t step = 0, event = 0, rank = 0;
  std::string buffer;
  std::vector<Contribution> columns;
  LedgerRow row;
};

struct Verdict {
  std::vector<Finding> findings;
  std::vector<AppliedRow> applied;
  RunFacts facts;
  bool one_pass = false;                           // of a run that is over: by its own values alone
  bool few_runs = false;                           // contributions shared runs
  bool each_alone = false;                         // these left weights open, and each contribution had a run of its own as well
  std::vector<std::string> left_out;               // what the runs leave out, in sentences
  bool dyadic = true;                              // the ledger was held to equality
  std::uint32_t contributions = 0, undecoded = 0;  // in the scenario; left out of decoding by the limit
  bool weights = false;                            // the ledger is of one run on weights, exact; else of passes on numbers
  std::uint32_t fingerprint_passes = 0, decode_passes = 0, value_passes = 0;
  // Past ledger_cells_max: snapshots that do not balance and that nobody named. Past listed_cells_max: applied gradients that `applied` does not list.
  std::uint64_t not_taken_apart = 0, not_listed = 0;
  JudgeStatistics ledger, values, parameters;
  InconclusiveRows inconclusive_rows;
  Coverage coverage;
  std::vector<SnapshotKey> unexplained;  // of one or a few runs: snapshots that are wrong, and either no weights explain them or the values leave some open
  std::vector<SnapshotKey> unbalanced;   // snapshots in which the ledger or a bound fails

  // Nothing found, and something judged.
  bool clean() const { return findings.empty() && coverage.nothing.empty(); }
  bool judged() const { return !findings.empty() || coverage.nothing.empty(); }
};

// Precondition: the scenario was admitted; producer, scenario and timeline outlive the call.
Verdict judge(const Workload& workload, const Timeline& timeline, Producer& producer, const OracleOptions& options);

}  // namespace gradledger::ref
