// A corpus against what each of its scenarios expects.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "report/corpus.h"
#include "sim/base/result.h"
#include "verbs/session.h"

namespace gradledger::verbs {

// Files and folders, each scenario once and in the order of their paths; `seen` gets each row as it is there, and may say how long
// it took. A scenario that is bad input is a
// row too. Precondition: some paths. Errors: a path that is not there, or no scenario in them.
Result<report::GateReport> gate(const std::vector<std::string>& paths, const Options& options, const std::function<void(report::GateRow&)>& seen);

}  // namespace gradledger::verbs
