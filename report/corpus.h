// Values of the verbs that hold many scenarios, faults or entries against what is known of them, and of what is known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "report/finding.h"
#include "report/problem.h"
#include "sim/scenario/catalogue.h"
#include "sim/scenario/overrides.h"

namespace gradledger::report {

// One scenario of a gate.
struct GateRow {
  std::string file, scenario;
  std::string expected, reported;       // classes of findings; "clean", "equal", "accounting only", where there are none
  std::vector<Problem> unmet;           // one for each expectation
  std::vector<Finding> findings;        // expected or not; whose they are, and which known defect, where it fails
  std::vector<std::string> parameters;  // names; elements of findings name them by number
  std::string note;                     // that its release is not known, and what it is taken as
  bool compared = false;                // two producers were
  bool bad_input = false, unavailable = false;
  bool broken = false;  // its run broke off
  std::string not_run;  // why it was not: the framework refuses it, or a driver cannot do it; nothing of it passed
  std::vector<std::string> driver_notes;
  std::uint64_t weights_compared = 0;   // elements of a real framework's weights that were held against its model's, with --against
  std::string engine, as_of, producer;  // what ran: empty where nothing did; a real framework's producer with its releases
  std::string command;                  // replays it
  std::string identity;                 // content_identity()
  std::vector<Override> overrides;      // said in place of what its file says
  std::uint64_t seed = 0;
  double seconds = 0;  // that it took; filled in by whoever has a clock
  struct Accepted {
    std::string finding, reason, expires;  // class; why, and until which day
  };
  std::vector<Accepted> accepted;     // of the findings: known to a baseline, and not expected
  std::vector<std::string> vanished;  // classes that the baseline accepts and that are not reported any more
  bool updated = false;               // its file expects what is reported, and did not before

  FoundIn found_in() const { return {scenario, file, engine, parameters, seed}; }
  bool failed() const { return !unmet.empty(); }
  bool passed() const { return unmet.empty() && not_run.empty(); }
};

struct GateReport {
  struct LeftOut {
    std::string file, why;
  };
  std::vector<GateRow> rows;  // none only where it was ended before the first
  std::size_t files = 0;      // that it was to be held over
  std::size_t deselected = 0;
  std::vector<LeftOut> left_out;    // of the folders: may be meant to be scenarios
  std::vector<std::string> unused;  // scenarios that a baseline names, and that are not among the files
  std::size_t unused_untold = 0;    // more of those, whose names are not known
  std::string ended_by;             // "-x", "--time-budget", "SIGINT", "SIGTERM", "standard output", "a broken run"; empty: all were held

  std::size_t passed() const;
  std::size_t failed() const;
  std::size_t not_run() const { return files - passed() - failed(); }
};

// One fault in one engine.
struct MutantRow {
  std::string mutant, engine;
  std::vector<ref::FindingClass> fitting, reported;  // classes that name it; those of the last case
  bool found = false;
  std::uint32_t cases = 0;  // until then
};

struct MutantReport {
  std::vector<MutantRow> rows;  // those of a mutant follow one another

  std::size_t mutants() const;
  std::size_t found() const;
  std::size_t alive() const { return rows.size() - found(); }
};

struct CoverageRow {
  const Entry* entry = nullptr;               // of the catalogue
  std::vector<std::string> defective, clean;  // scenarios that report something, and nothing
  std::set<std::string> reported;             // classes
  std::string problem;                        // why the entry is open; "" where it is not

  bool covered() const { return !defective.empty() || !clean.empty(); }
};

struct CoverageReport {
  std::vector<CoverageRow> rows;  // one for each entry, in the order of the catalogue
  std::size_t scenarios = 0;
  std::string outdated_page;  // "" where none was looked at, or it is right

  std::size_t open() const;
};

// docs/coverage.md.
std::string coverage_page(const std::vector<CoverageRow>& rows);

// One of the tables of what is known.
struct Listing {
  using Row = std::vector<std::string>;
  std::string what;        // "engines"
  std::vector<Row> table;  // the first row is the heading
  std::string legend;      // for people: what words of the table mean; empty where they speak for themselves
};

}  // namespace gradledger::report
