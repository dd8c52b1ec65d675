// Parameters of which the same is due, whatever the snapshot.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/scenario/timeline.h"
#include "sim/scenario/workload.h"

namespace gradledger::ref {

// By parameter: the first that it is like. The same contributions have a gradient for both, and no event names either.
std::vector<std::uint32_t> alike_parameters(const Workload& workload, const Timeline& timeline);

}  // namespace gradledger::ref
