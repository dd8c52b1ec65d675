// What the replay of a recorded run held, issued, handed over and raised, by rank and event.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "sim/execution/rank.h"
#include "sim/trace/producer.h"
#include "conformance/torch/script.h"
#include "conformance/torch/wrapper.h"

namespace gradledger::conform::torch {

class Replay final : private TraceSink {
 public:
  Replay(const Expressed& expressed, const Timeline& timeline, const Wrapper& wrapper);

  const Moment& at(std::size_t rank, std::size_t event) const { return moments_[rank][event]; }
  // The rank's part of a parameter as it was after the event, or at first: zeros.
  std::vector<double> weights(std::size_t rank, std::uint32_t event, std::uint32_t parameter) const;
  const std::string& stuck() const { return stuck_; }

 private:
  void observe(const Observation& o) override;
  void reduction(const ReductionRecord& r) override;
  void step_fact(const StepRecord& s) override;
  void engine_error(const EngineErrorRecord& e) override { moments_[e.rank][e.event].error = e.type + ": " + e.message; }
  void deadlock(const DeadlockRecord&) override { stuck_ = "deadlocks"; }
  void mismatch(const MismatchRecord& m) override { stuck_ = "issues collectives of different " + m.what; }

  void take_collectives(std::span<const Rank> ranks);
  void find_views(std::span<const Rank> ranks);

  const Scenario& scenario_;
  const Wrapper& wrapper_;
  std::vector<std::vector<Moment>> moments_;  // [rank][event]
  // By rank, group and number in the group: what reductions were given and gave.
  std::map<std::array<std::uint32_t, 3>, Transfer> transfers_;
  std::string stuck_;
};

}  // namespace gradledger::conform::torch
