// What a run shows beside values: collectives, allocations, errors, deadlocks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/trace/kept_round.h"
#include "sim/trace/producer.h"

namespace gradledger::ref {

// Reductions of gradients by one rank at one event that is none of the documentation's.
struct SurplusCollectives {
  std::uint32_t event = 0, rank = 0, collectives = 0;
  std::uint64_t bytes = 0;
};

struct RunFacts {
  RunSummary summary;
  // purpose -> [rank][window]: how many collectives
  std::map<std::string, std::vector<std::vector<std::uint32_t>>> collectives;
  std::vector<std::string> allocated;  // buffer names without index, sorted
  std::vector<EngineErrorRecord> engine_errors;
  std::vector<UnwrittenRecord> unwritten;
  std::optional<DeadlockRecord> deadlock;
  std::optional<MismatchRecord> mismatch;  // the first by event: ranks outside of it go on, and may run into others
  std::vector<RaceRecord> races;
  std::vector<SurplusCollectives> surplus;  // by event, then rank
  std::vector<bool> host_gradients;         // by rank: some gradient was shown in host memory

  bool stopped() const { return !engine_errors.empty() || deadlock || mismatch; }
};

class FactsSink final : public TraceSink, public TakesRounds {
 public:
  FactsSink(const Workload& workload, const Timeline& timeline);

  void observe(const Observation& observation) override { note_space(observation); }
  void weights(const WeightObservation& observation) override { note_space(observation); }
  void collective(const CollectiveRecord& record) override;
  void memory(const MemoryRecord& record) override;
  void round_again(KeptRound& round) override { round.show(*this, false); }  // its snapshots lie where they did
  void unwritten(const UnwrittenRecord& record) override { facts_.unwritten.push_back(record); }
  void engine_error(const EngineErrorRecord& record) override { facts_.engine_errors.push_back(record); }
  void deadlock(const DeadlockRecord& record) override { facts_.deadlock = record; }
  void mismatch(const MismatchRecord& record) override;
  void race(const RaceRecord& record) override { facts_.races.push_back(record); }

  RunFacts take(RunSummary summary);

 private:
  template <class Snapshot>
  void note_space(const Snapshot& snapshot);
  bool reduces_here(std::uint32_t event) const;

  const Workload& workload_;
  const Timeline& timeline_;
  RunFacts facts_;
  std::map<Purpose, std::vector<std::vector<std::uint32_t>>> collectives_;         // as in the facts
  std::map<std::pair<std::uint32_t, std::uint32_t>, SurplusCollectives> surplus_;  // by event, rank
};

// Passes everything on to several sinks, in order.
class Tee : public TraceSink, public TakesRounds {
 public:
  void add(TraceSink* sink) {
    if (sink) sinks_.push_back(sink);
  }
  void observe(const Observation& r) override {
    for (TraceSink* s : sinks_) s->observe(r);
  }
  void weights(const WeightObservation& r) override {
    for (TraceSink* s : sinks_) s->weights(r);
  }
  void collective(const CollectiveRecord& r) override {
    for (TraceSink* s : sinks_) s->collective(r);
  }
  void reduction(const ReductionRecord& r) override {
    for (TraceSink* s : sinks_) s->reduction(r);
  }
  void memory(const MemoryRecord& r) override {
    for (TraceSink* s : sinks_) s->memory(r);
  }
  void step_fact(const StepRecord& r) override {
    for (TraceSink* s : sinks_) s->step_fact(r);
  }
  void event_done(std::uint32_t rank, std::uint32_t event) override {
    for (TraceSink* s : sinks_) s->event_done(rank, event);
  }
  void unwritten(const UnwrittenRecord& r) override {
    for (TraceSink* s : sinks_) s->unwritten(r);
  }
  void engine_error(const EngineErrorRecord& r) override {
    for (TraceSink* s : sinks_) s->engine_error(r);
  }
  void deadlock(const DeadlockRecord& r) override {
    for (TraceSink* s : sinks_) s->deadlock(r);
  }
  void mismatch(const MismatchRecord& r) override {
    for (TraceSink* s : sinks_) s->mismatch(r);
  }
  void race(const RaceRecord& r) override {
    for (TraceSink* s : sinks_) s->race(r);
  }
  void round_again(KeptRound& round) override {
    for (TraceSink* s : sinks_) {
      if (auto* takes = dynamic_cast<TakesRounds*>(s)) takes->round_again(round);
      else round.show(*s);
    }
  }
  void rounds_over(KeptRound& round) override {
    for (TraceSink* s : sinks_)
      if (auto* takes = dynamic_cast<TakesRounds*>(s)) takes->rounds_over(round);
  }

 private:
  std::vector<TraceSink*> sinks_;
};

}  // namespace gradledger::ref
