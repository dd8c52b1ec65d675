// What the replay of a recorded run held, issued, handed over and raised, by rank and event.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/execution/rank.h"
#include "sim/trace/producer.h"
#include "conformance/torch/script.h"

namespace gradledger::conform::torch {

class Replay final : private TraceSink {
 public:
  Replay(const Expressed& expressed, const Timeline& timeline);

  const Moment& at(std::size_t rank, std::size_t event) const { return moments_[rank][event]; }
  // Weights as they were after the event: as last observed, at first zeros.
  std::vector<double> weights(std::size_t rank, std::size_t event, std::uint32_t parameter) const;
  const std::string& stuck() const { return stuck_; }

 private:
  void observe(const Observation& o) override;
  void collective(const CollectiveRecord& c) override;
  void reduction(const ReductionRecord& r) override;
  void step_fact(const StepRecord& s) override;
  void engine_error(const EngineErrorRecord& e) override { moments_[e.rank][e.event].error = e.type + ": " + e.message; }
  void deadlock(const DeadlockRecord&) override { stuck_ = "deadlocks"; }
  void mismatch(const MismatchRecord& m) override { stuck_ = "issues collectives of different " + m.what; }

  void find_views(std::span<const Rank> ranks);

  const Scenario& scenario_;
  std::vector<std::vector<Moment>> moments_;  // [rank][event]
  std::string stuck_;
};

}  // namespace gradledger::conform::torch
