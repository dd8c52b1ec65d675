// Holds a verdict against what the scenario expects.
#pragma once

#include <string>
#include <vector>

#include "tools/gradledger/session.h"

namespace gradledger::tool {

// One line for each expectation that is not met; empty when all are.
std::vector<std::string> unmet(const Loaded& loaded, const ref::Verdict& verdict);

// Applied gradients of two scenarios, step by step: whether they lie within both bounds. Errors: the other scenario cannot be loaded,
// or has other parameters, gradients or
// numbers of samples. Throws ProgramsTooLarge.
Result<bool> applied_agree(const Loaded& one, const Loaded& other, const Options& options);

}  // namespace gradledger::tool
