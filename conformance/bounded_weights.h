// Recorded weights of an optimizer with moments, whose formula each implementation evaluates in an order of its own.
#pragma once

#include <cstdint>
#include <string>

#include "conformance/recording.h"
#include "conformance/replay.h"

namespace gradledger::conform {

struct WeightsOutcome {
  std::uint64_t elements = 0;  // held against their bound, or against the step before
  std::string why;             // the first that lies outside, and how far; empty: none does
};

// Recorded weights against the update in fp64 of the gradients that the replay applied, with the oracle's bound on any order of the operations in
// fp32. Where no rank applied anything they are what they were, bit for bit. Precondition: the timeline and the replay are the recording's.
WeightsOutcome hold_weights(const Recording& recording, const Replay& replay, const Timeline& timeline);

}  // namespace gradledger::conform
