// What is documented of gradients that are not finite: which configurations promise to skip a step, and which windows hold planted ones.
#pragma once

#include <vector>

#include "sim/scenario/timeline.h"

namespace gradledger::ref {

// By window: whether a planted value is among the contributions that its step is due.
std::vector<bool> planted_windows(const Timeline& timeline);

// By window: whether its step must be skipped for what the script plants. Nothing of such a window is due in an applied gradient.
std::vector<bool> windows_to_skip(const Timeline& timeline);

}  // namespace gradledger::ref
