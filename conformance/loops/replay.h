// What the replay of a recorded loop held after each event.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/scenario/timeline.h"
#include "sim/trace/producer.h"
#include "conformance/loops/script.h"

namespace gradledger::conform::loop_runs {

class Replay final : private TraceSink {
 public:
  Replay(const Scenario& scenario, const Timeline& timeline);

  // The parameter's gradient behind the event; none: there is no gradient.
  std::optional<std::vector<double>> gradient(std::uint32_t rank, std::uint32_t event) const;
  // The weights behind the last step up to the event: zeros before the first. Elements that the rank does not hold are those of a rank that does.
  std::vector<double> weights(std::uint32_t rank, std::uint32_t event) const;
  const std::string& stuck() const { return stuck_; }  // what keeps it from its end; empty: nothing

 private:
  void observe(const Observation& o) override;
  void engine_error(const EngineErrorRecord& e) override { stuck_ = "raises " + e.type + ": " + e.message; }
  void deadlock(const DeadlockRecord&) override { stuck_ = "deadlocks"; }
  void mismatch(const MismatchRecord& m) override { stuck_ = "issues collectives of different " + m.what; }

  std::size_t numel_;
  struct Held {
    std::vector<double> values;
    std::vector<bool> held;
  };

  std::vector<std::map<std::uint32_t, std::vector<double>>> gradients_;  // by rank and event
  std::vector<std::map<std::uint32_t, Held>> weights_;                   // likewise
  std::string stuck_;
};

}  // namespace gradledger::conform::loop_runs
