// What stops a rank may be a decision on values, as a norm that raises or waits. A linear run goes past it, to what the loop never came to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/trace/producer.h"

namespace gradledger::ref {

// How far the ranks of a run came, and what they showed of the event that they stopped in.
class Reached final : public TraceSink {
 public:
  explicit Reached(std::uint32_t world_size) : ranks_(world_size) {}

  void observe(const Observation& o) override { at(o.rank, o.event).shown.emplace(o.at_end, o.buffer); }
  void event_done(std::uint32_t rank, std::uint32_t event) override { at(rank, event).done = true; }
  void engine_error(const EngineErrorRecord&) override { stopped_ = true; }
  void deadlock(const DeadlockRecord&) override { stopped_ = true; }
  void mismatch(const MismatchRecord&) override { stopped_ = true; }

  bool stopped() const { return stopped_; }
  std::uint32_t world_size() const { return static_cast<std::uint32_t>(ranks_.size()); }
  // A run that came to its end has all of its events.
  bool has(std::uint32_t rank, std::uint32_t event) const { return !stopped_ || event < ranks_[rank].events; }
  bool has(const auto& o) const {  // an observation, of numbers or of weights
    const Rank& rank = ranks_[o.rank];
    if (!stopped_ || o.event + 1 < rank.events) return true;
    return o.event + 1 == rank.events && (rank.done || rank.shown.contains({o.at_end, std::string(o.buffer)}));
  }

 private:
  struct Rank {
    std::uint32_t events = 0;  // that it came to; of the last one:
    bool done = false;
    std::set<std::pair<bool, std::string>> shown;
  };

  Rank& at(std::uint32_t number, std::uint32_t event) {
    Rank& rank = ranks_[number];
    if (event >= rank.events) rank = {event + 1, false, {}};
    return rank;
  }

  std::vector<Rank> ranks_;
  bool stopped_ = false;
};

// Passes on what another run came to. Rounds that repeat are shown event by event.
class AsFarAs final : public TraceSink {
 public:
  AsFarAs(const Reached& reached, TraceSink& to) : reached_(reached), to_(to), done_(reached.world_size()) {}

  // Whether this run came to the end of the event on the rank. It may stop where the other did not: at a norm of zero, say, of gradients that are probes.
  bool came_through(std::uint32_t rank, std::uint32_t event) const { return !stopped_ || event < done_[rank]; }

  void observe(const Observation& o) override {
    if (reached_.has(o)) to_.observe(o);
  }
  void weights(const WeightObservation& o) override {
    if (reached_.has(o)) to_.weights(o);
  }
  void event_done(std::uint32_t rank, std::uint32_t event) override {
    done_[rank] = event + 1;
    if (reached_.has(rank, event)) to_.event_done(rank, event);
  }
  void engine_error(const EngineErrorRecord& record) override {
    stopped_ = true;
    if (reached_.has(record.rank, record.event)) to_.engine_error(record);
  }
  void deadlock(const DeadlockRecord&) override { stopped_ = true; }
  void mismatch(const MismatchRecord&) override { stopped_ = true; }

 private:
  const Reached& reached_;
  TraceSink& to_;
  std::vector<std::uint32_t> done_;  // by rank: events that it is through with
  bool stopped_ = false;
};

}  // namespace gradledger::ref
