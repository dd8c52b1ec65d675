// A corpus against the catalogue: which scenarios show an entry, which show it to be absent, and what is open.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "report/corpus.h"
#include "sim/frameworks/framework.h"
#include "verbs/session.h"

namespace gradledger::verbs {

// A scenario that covers entries, or is the twin of one that does.
struct CoveringScenario {
  std::filesystem::path path;
  std::string label;  // relative to the corpus, without ".json"
  std::set<std::string> covers;
  std::filesystem::path twin;          // normal form; empty: none
  std::set<std::string> expected;      // classes
  std::set<std::string> reported;      // classes
  std::vector<report::Problem> unmet;  // what is not as the scenario expects
};

// Those of a folder, in the order of their paths, each taken to report what it expects. Errors: a file that cannot be read, no scenario
// that covers anything.
Result<std::vector<CoveringScenario>> covering_scenarios(const std::filesystem::path& folder, const Options& options);

// What each really reports. Errors: one that needs more memory than it may have.
std::optional<InputError> judge_all(std::vector<CoveringScenario>& scenarios, const Options& options);

// One for each entry, in the order of the catalogue.
std::vector<report::CoverageRow> coverage_of(const std::vector<CoveringScenario>& scenarios);

}  // namespace gradledger::verbs
