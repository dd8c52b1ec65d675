// Sinks that ask of memory what is new, and not how often a round of events allocates and frees the same again.
#pragma once

namespace gradledger {

// A sink that is one of these too is not shown the allocations of rounds that repeat the one before them; and of a rank that does what another one does, no more
// than the first allocation of each buffer.
struct NeedsNoRepeatedMemory {};

// The same, but it is shown all that each rank allocates and frees in the rounds that are run.
struct NeedsMemoryOfRounds : NeedsNoRepeatedMemory {};

}  // namespace gradledger
