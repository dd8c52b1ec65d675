// A step that is skipped leaves no trace: weights, master weights and optimizer state keep every bit.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ref/steps.h"
#include "sim/trace/producer.h"

namespace gradledger::ref {

// Watches one pass with every decision of the engine alive. A rank is held to what it reports itself: a step that says overflow and applies
// no gradient leaves what the step before it left, and the first one what the run began with.
class KeptStateJudge final : public TraceSink {
 public:
  KeptStateJudge(const Workload& workload, const Timeline& timeline, const GradientSource& source);

  void observe(const Observation& observation) override;
  void step_fact(const StepRecord& record) override;

  // Of each rank and step the first buffer that changed, with the stretches of it that did.
  const std::vector<StepMismatch>& mismatches() const { return mismatches_; }

 private:
  struct RankState {
    std::uint32_t skipped_at = never, applied_at = never;                   // events
    std::map<std::string, std::vector<std::uint64_t>, std::less<>> hashes;  // by buffer: of each of its pieces, after the step before
  };

  std::vector<std::uint64_t> hashes_of(const Observation& observation) const;
  bool as_at_the_start(const Observation& observation, const ObservedPiece& piece) const;
  void compare(const Observation& observation, const std::vector<std::uint64_t>* before, const std::vector<std::uint64_t>& after);

  const Workload& workload_;
  const Timeline& timeline_;
  const GradientSource& source_;
  std::vector<RankState> ranks_;
  std::vector<StepMismatch> mismatches_;
};

}  // namespace gradledger::ref
