// What the replay of a recorded run held, issued and raised, by rank and event, in the recording's names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/frameworks/megatron/megatron_engine.h"
#include "sim/scenario/timeline.h"
#include "sim/trace/producer.h"
#include "conformance/megatron/script.h"

namespace gradledger::conform::megatron {

// What an optimizer counts the zeros of, and over which ranks.
struct Counted {
  std::vector<std::uint32_t> ranks;
  std::vector<std::string> gradients;
};

// What an engine's host knows after each event: it is no value of a program.
struct HostState {
  std::map<std::uint32_t, std::vector<Counted>> counted;  // by event, by optimizer
  std::vector<BufferLayout> layout;
  std::map<std::uint32_t, std::map<std::string, GroupState>> groups;  // by event
};

class Replay final : private TraceSink {
 public:
  Replay(const Expressed& expressed, const Timeline& timeline);

  // Everything of an event; of several, calls and errors of all and the state behind the last.
  Moment at(std::size_t rank, EventRange events) const;
  const std::vector<BufferLayout>& layout(std::size_t rank) const { return hosts_[rank].layout; }
  // Of the gradients that the optimizers of a rank, and of the ranks that they count with, have behind an event; none where one of them did not get there.
  std::optional<double> zeros(std::size_t rank, std::uint32_t event) const;
  const std::string& stuck() const { return stuck_; }

 private:
  void observe(const Observation& o) override;
  void collective(const CollectiveRecord& c) override;
  void step_fact(const StepRecord& s) override;
  void engine_error(const EngineErrorRecord& e) override { moments_[e.rank][e.event].error = e.type + ": " + e.message; }
  void deadlock(const DeadlockRecord&) override { stuck_ = "deadlocks"; }
  void mismatch(const MismatchRecord& m) override { stuck_ = "issues collectives of different " + m.what; }

  const Expressed& expressed_;
  std::vector<std::vector<std::uint32_t>> groups_;  // by id: their ranks
  std::vector<std::vector<Moment>> moments_;        // [rank][event]
  std::vector<HostState> hosts_;                    // [rank]
  std::string stuck_;
};

}  // namespace gradledger::conform::megatron
