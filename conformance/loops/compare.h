// Holds a recorded training loop against the replay of what `loops` expands it into, at the release that it ran.
#pragma once

#include "conformance/compare.h"
#include "conformance/loops/run.h"

namespace gradledger::conform::loop_runs {

// Errors: the run shows nothing that could be compared.
Result<Comparison> judge(const Run& run);

}  // namespace gradledger::conform::loop_runs
