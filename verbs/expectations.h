// Holds a verdict against what the scenario expects.
#pragma once

#include <string>
#include <vector>

#include "verbs/session.h"

namespace gradledger::verbs {

// A verdict, and what its primary pass showed where the scenario expects anything of it.
struct Held {
  ref::Verdict verdict;
  std::optional<Accounting> accounting;
  std::vector<std::string> unmet_values;  // exact contents that were not there, a line each
};
// Throws ProgramsTooLarge.
Held run_for_expectations(const Loaded& loaded, const Options& options);

// One line for each expectation that is not met; empty when all are.
std::vector<std::string> unmet(const Loaded& loaded, const Held& held);
// Likewise, of what a verdict shows alone: no memory, no bytes and no contents.
std::vector<std::string> unmet(const Loaded& loaded, const ref::Verdict& verdict);
// Likewise, of what an accounting shows alone.
std::vector<std::string> unmet(const Loaded& loaded, const Accounting& accounting);

// Of a scenario that expects accounting only, by a dry run. Throws ProgramsTooLarge.
std::vector<std::string> unmet_in_dry_run(const Loaded& loaded, const Options& options);

// Applied gradients of two scenarios, step by step: whether they lie within both bounds. Errors: the other scenario cannot be loaded,
// or has other parameters, gradients or
// numbers of samples. Throws ProgramsTooLarge.
Result<bool> applied_agree(const Loaded& one, const Loaded& other, const Options& options);

}  // namespace gradledger::verbs
