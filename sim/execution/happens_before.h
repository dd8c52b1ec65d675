// Happens-before over the streams of a rank: two accesses to the same elements, one of them a write, must be ordered by what the program
// itself waits for. Decided from the program alone, so that it holds for every schedule.
//
// Ordered are: operations of one stream; host work and what the host enqueues after it; a record and what follows a wait for it; what was
// enqueued before a synchronize and the host after it. Another rank's progress orders nothing. A snapshot's own wait and reads are not
// the framework's and count for nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/program.h"
#include "sim/trace/observation.h"

namespace gradledger {

// One record for each pair of operation kinds and streams that meets in a buffer, the first time it does, in the order of the program;
// at most limits::races_reported_max.
std::vector<RaceRecord> stream_races(const Program& program, std::uint32_t rank);

}  // namespace gradledger
