// What an audit has to say: whether a training set-up loses gradients, what that means for its optimizer, since when, and what helps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/finding.h"

namespace gradledger::report {

enum class AuditOutcome : std::uint8_t { not_affected, affected, not_judged };
std::string_view name_of(AuditOutcome outcome);

// A value that the audit put where a file has none, or "auto".
struct AuditFilled {
  std::string file, pointer, value, why;
};

// Something that happens to contributions: lost, doubled, ...
struct AuditEffect {
  std::string kind;                         // "lost", "partly lost", "scaled", "stale", "private", "raises", "other"
  std::string sentence;                     // which micro-batches of which ranks, in which windows
  std::uint32_t micro_batches = 0, of = 0;  // of each rank's window, where that is the same everywhere; 0: it is not
};

// A verdict over a run of releases that do alike.
struct AuditReleases {
  std::string package, releases, verdict;
  bool affected = false, judged = true, current = false;
};

// A change that was tried by replaying the run with it.
struct AuditAdvice {
  std::string says, verdict;
  bool clean = false;
};

struct AuditMatrix {
  std::string corner;
  std::vector<std::string> columns;
  struct Row {
    std::string name;
    std::vector<std::string> cells;
  };
  std::vector<Row> rows;
};

struct AuditReport {
  std::string command;  // repeats it
  double seconds = 0;   // that it took; filled in by whoever has a clock

  // What was read.
  std::string framework, release, engine, described, loop, loop_says, optimizer;
  std::vector<std::string> packages;  // "transformers 5.23.0 (assumed: the newest that is modelled)"
  std::uint32_t ranks = 0, micro_batches = 0, windows = 0;
  std::string model;
  std::vector<AuditFilled> filled;
  std::vector<std::string> ignored, unknown, notes;
  std::vector<std::string> not_judged;  // what the answer says nothing of

  // The answer.
  AuditOutcome outcome = AuditOutcome::not_judged;
  std::string verdict;  // in a few words, as cells of matrices have it
  std::vector<AuditEffect> effects;
  std::vector<Finding> findings;     // one of each class
  std::vector<std::string> meaning;  // for this optimizer
  std::string since, fixed;          // releases around this one; empty: not affected, or no history
  std::vector<AuditReleases> releases;
  std::vector<AuditAdvice> advice;
  std::vector<AuditMatrix> matrices;
  std::string scenario_file, replay_command;
  std::string scenario;                 // name of what was judged
  std::vector<std::string> parameters;  // of it
  std::uint64_t seed = 0;
  std::uint32_t judged_runs = 0, runs_alike = 0;  // replays that were judged; that did the same as one that was
};

}  // namespace gradledger::report
