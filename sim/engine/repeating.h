// Engines that answer the same round of events alike, as long as no count of theirs decides otherwise. Who runs them may then take a round as
// written that was proven to be the same as the one before: see sim/execution/symbolic/steady_rounds.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "sim/engine/state_fold.h"

namespace gradledger {

// A round: backwards of whole graphs through the engine, and calls of step() that neither update nor are at a boundary.
class Repeating {
 public:
  using Counts = std::array<std::int64_t, 2>;

  virtual ~Repeating() = default;
  // What it counts and never resets in a round.
  virtual Counts counts() const = 0;
  virtual void add_counts(const Counts& more) = 0;
  // What of its state decides what it does next, but for these counts. Not const: it may set them aside.
  virtual void fold_without_counts(StateFold& f) = 0;
  // How many rounds may follow, each of which adds `a_round` to the counts, in which no count decides anything else than in the last one. ends_with_step: nothing
  // of a round comes behind its last call of step().
  virtual std::uint64_t rounds_alike(const Counts& a_round, bool ends_with_step) const = 0;
};

}  // namespace gradledger
