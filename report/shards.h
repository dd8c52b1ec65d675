// Values of runs that several processes share, and of what joins their reports.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/corpus.h"
#include "report/searches.h"
#include "sim/scenario/scenario.h"

namespace gradledger::report {

// What a campaign draws its cases from, as its options have it.
struct DrawnFrom {
  std::optional<std::uint64_t> cases, time_s, only;
  std::vector<std::string> engines;
  std::string as_of;
  std::vector<std::string> switches;
  bool any_script = false;
};

// The head of a shard's report: which one it is, and who says so.
struct ShardRow {
  std::string verb;
  std::uint32_t shard = 0, shards = 1;
  std::string launcher;                                        // "OpenMPI"; empty: --shard says it
  std::vector<std::pair<std::string, std::string>> variables;  // that were read, with their values
  std::string run;                                             // the command without what differs between its shards
  std::uint64_t seed = 0;
  std::optional<DrawnFrom> draws;  // of a campaign that can be joined
};

// A case of a campaign that whoever joins shards decides on again.
struct JudgedRow {
  struct Shown {
    std::string finding;
    std::optional<Scenario> scenario;
    bool minimal = false;
    std::string broken;
  };
  std::uint64_t number = 0;
  std::optional<std::uint64_t> alike;
  std::string broken, nondeterministic;
  std::vector<Shown> shown;
};

// A row of a gate that another process printed.
struct MergedGateRow {
  GateRow row;                                 // as text has it: without its findings
  std::string record;                          // as JSON, with all of it
  std::map<std::string, std::size_t> classes;  // of its findings
};

// An exploration that other processes printed, all of them alike.
struct MergedExploration {
  ExploreReport report;  // as text has it: findings without their scripts
  std::string records;   // as JSON, with all of them
};

// What the reports of shards were joined to.
struct MergeReport {
  struct Part {
    std::uint32_t shard = 0;
    std::string file, launcher;
    std::optional<int> exit_code;  // none: it has no summary
    std::string ended_by;
  };
  struct Missing {
    std::uint32_t shard = 0;
    std::string file, why;  // file: of what it left, empty where that is nothing
  };
  struct Further {
    std::uint64_t number = 0;
    std::string finding;
  };
  std::string verb;
  std::uint32_t shards = 0;
  std::vector<Part> parts;       // in their order
  std::vector<Missing> missing;  // likewise
  std::vector<Further> further;  // cases that one process would not have judged, with what they show
  std::uint64_t made_small = 0;  // findings that no shard had
};

}  // namespace gradledger::report
