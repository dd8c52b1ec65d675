// A corpus against what each of its scenarios expects.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "report/corpus.h"
#include "sim/base/result.h"
#include "verbs/baseline.h"
#include "verbs/selection.h"
#include "verbs/session.h"

namespace gradledger::verbs {

// How a gate goes about it. What it finds of a scenario depends on none of this.
struct GateManner {
  Selection selection;
  bool until_a_failure = false;
  bool update = false;                 // files that expect other findings than are reported are changed
  const Baseline* baseline = nullptr;  // not owned
  std::uint32_t jobs = 1;              // one with devices or a real framework
  // Why it is to end before the next scenario; empty: go on. For any thread.
  std::function<std::string()> stop = [] { return std::string(); };
  std::function<double()> seconds = [] { return 0.0; };  // a clock, of which the library has none
};

// Files and folders, each scenario once and in the order of their paths; `seen` gets each row in this order, once it and all before it are
// there. A scenario that is bad input is a row too. Precondition: some paths. Errors: a path that is not there, or no scenario in them.
Result<report::GateReport> gate(const std::vector<std::string>& paths, const Options& options, const std::function<void(const report::GateRow&)>& seen,
                                const GateManner& manner = {});

}  // namespace gradledger::verbs
