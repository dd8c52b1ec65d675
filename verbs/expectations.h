// Holds a verdict against what the scenario expects.
#pragma once

#include <string>
#include <vector>

#include "report/problem.h"
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

// One for each expectation that is not met; empty when all are. Their places in the file are left to locate().
std::vector<report::Problem> unmet(const Loaded& loaded, const Held& held);
// Likewise, of what a verdict shows alone: no memory, no bytes and no contents.
std::vector<report::Problem> unmet(const Loaded& loaded, const ref::Verdict& verdict);
// Likewise, of what an accounting shows alone.
std::vector<report::Problem> unmet(const Loaded& loaded, const Accounting& accounting);

// Of a scenario that expects accounting only, by a dry run. Throws ProgramsTooLarge.
std::vector<report::Problem> unmet_in_dry_run(const Loaded& loaded, const Options& options);

// A finding as a problem of the scenario, with another text than its sentence.
report::Problem problem_of(const Loaded& loaded, const ref::Finding& finding, std::string text);

// Line and column of every problem that has a pointer, from the scenario's file; nothing where that cannot be read any more.
void locate(const Loaded& loaded, std::vector<report::Problem>& problems);

// Applied gradients of two scenarios, step by step: whether they lie within both bounds. Errors: the other scenario cannot be loaded,
// or has other parameters, gradients or
// numbers of samples. Throws ProgramsTooLarge.
Result<bool> applied_agree(const Loaded& one, const Loaded& other, const Options& options);

}  // namespace gradledger::verbs
