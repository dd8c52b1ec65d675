// Reductions of a real framework's collectives. Floats are summed and averaged as NCCL's ring does it (docs/arithmetic.md), so that a run on CPUs has
// the bits of one on GPUs; integers are exact and wrap around; what is left goes along the same chains.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/producers/driver/group_request.h"

namespace gradledger::driver {

// Averages of bool, bits of floats, and anything of bytes are no reductions.
bool is_reduction(GroupOperator op, GroupDtype dtype);

// The results by member. Preconditions: one request a member, in the order of the group, and all fit each other; is_reduction();
// a reduce_scatter's elements divide evenly.
std::vector<std::vector<std::uint8_t>> run_reduction(std::span<const GroupRequest* const> members);

}  // namespace gradledger::driver
