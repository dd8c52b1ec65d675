// What is documented of gradients that are not finite: which configurations promise to skip a step, and which windows hold planted ones.
#pragma once

#include <vector>

#include "sim/scenario/scenario.h"
#include "sim/scenario/timeline.h"

namespace gradledger::ref {

// fp16 always; bf16 where check_grad_overflow says so, and at stages 1 and 2, where that key has its effect, unless it says no; fp32 never.
bool promises_overflow_check(const Scenario& scenario);

// By window: whether a planted value is among the contributions that its step is due.
std::vector<bool> planted_windows(const Timeline& timeline);

// By window: whether its step must be skipped for what the script plants. Nothing of such a window is due in an applied gradient.
std::vector<bool> windows_to_skip(const Scenario& scenario, const Timeline& timeline);

}  // namespace gradledger::ref
