// What the replay of a recording held, issued and reported, under the names that recordings use.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/scenario/timeline.h"
#include "sim/trace/producer.h"
#include "conformance/run.h"

namespace gradledger::conform {

// A stretch of the gradient that a step was given, in its own bytes.
struct AppliedGradient {
  ObservedPiece piece;
  std::vector<std::byte> bytes;
};

struct ReplayedMoment {
  std::map<std::string, RecordedBuffer> buffers;
  std::vector<std::vector<double>> parameters;  // where weights were observed; NaN where another rank holds an element
  std::optional<double> norm, loss_scale;
  std::optional<bool> overflow;
  std::vector<RecordedCollective> collectives;
  std::vector<AppliedGradient> applied;  // by a step, where the optimizer has moments
};

// Runs the scenario with the arithmetic of the recordings' collectives. Precondition: the scenario was admitted and `timeline` is its own.
class Replay final : private TraceSink {
 public:
  static constexpr std::uint64_t program_bytes_max = 2ull << 30;

  // Throws ProgramsTooLarge.
  Replay(const Scenario& scenario, const Timeline& timeline);

  const ReplayedMoment& at(std::size_t rank, std::size_t event) const { return moments_[rank][event]; }
  const std::vector<EngineErrorRecord>& errors(std::size_t rank) const { return errors_[rank]; }
  const std::string& stuck() const { return stuck_; }  // "deadlocks"; empty: it ran through

  // As last observed up to the event, at first what the run began with. NaN: another rank holds the element.
  double weight(std::size_t rank, std::size_t event, std::size_t parameter, std::size_t element) const;
  // As last reported up to the event, at first 0.
  double norm(std::size_t rank, std::size_t event) const;
  // Likewise; at first what the configuration says, 1 where it says nothing.
  double loss_scale(std::size_t rank, std::size_t event) const;
  // Of the last step that updated or skipped; at first false.
  bool overflow(std::size_t rank, std::size_t event) const;

 private:
  void observe(const Observation& o) override;
  void collective(const CollectiveRecord& c) override;
  void step_fact(const StepRecord& m) override;
  void engine_error(const EngineErrorRecord& e) override { errors_[e.rank].push_back(e); }
  void deadlock(const DeadlockRecord&) override { stuck_ = "deadlocks"; }
  void mismatch(const MismatchRecord& m) override { stuck_ = "issues collectives of different " + m.what; }

  void keep_applied(const Observation& o, ReplayedMoment& moment) const;
  void keep_weights(const Observation& o, ReplayedMoment& moment);
  void index_updates();

  // The event that last observed weights, or reported one of the others, for each event; -1: none yet.
  struct Latest {
    std::vector<std::int64_t> weights, norm, loss_scale, overflow;
  };

  const Scenario& scenario_;
  std::vector<std::vector<ReplayedMoment>> moments_;  // [rank][event]
  std::vector<Latest> latest_;                        // [rank]
  std::vector<std::vector<std::uint32_t>> groups_;    // members by id
  std::vector<std::vector<double>> initial_weights_;
  std::vector<std::vector<EngineErrorRecord>> errors_;
  double initial_loss_scale_;
  std::string stuck_;
};

}  // namespace gradledger::conform
