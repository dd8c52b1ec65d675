// Keeps what a round showed to a sink, and shows the same of later rounds that nobody runs.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/execution/symbolic/steady_forms.h"
#include "sim/trace/kept_round.h"

namespace gradledger {

// Stands before the sink of a run and passes everything on.
class RoundRecorder final : public TraceSink {
 public:
  explicit RoundRecorder(TraceSink& to) : to_(to), takes_rounds_(dynamic_cast<TakesRounds*>(&to)) {}

  // Forgets what it has; from now on it keeps what it passes on, or not.
  void keep(bool keeps) {
    keeps_ = keeps;
    round_.clear();
  }

  // What was kept, as of each of so many rounds that follow, of so many events. sequences: how many collectives of each group a rank calls in a round.
  void repeat(std::uint32_t rounds, std::uint32_t events, const std::vector<std::vector<std::uint32_t>>& sequences, SteadyForms& steady, LinearForms& forms) {
    for (std::uint32_t more = 1; more <= rounds; ++more) {
      std::vector<KeptRound::Form> later;
      later.reserve(round_.forms().size());
      for (const auto& [form, terms] : round_.forms()) {
        const FormId then = steady.shown_after(static_cast<FormId>(form), more);
        later.emplace_back(then, forms.terms(then));
      }
      round_.move_on(std::move(later), events, &sequences);
      if (takes_rounds_) takes_rounds_->round_again(round_);
      else round_.show(to_);
    }
    if (takes_rounds_) takes_rounds_->rounds_over(round_);
  }

  void weights(const WeightObservation& o) override {
    if (keeps_) round_.keep(o);
    to_.weights(o);
  }
  void collective(const CollectiveRecord& r) override {
    if (keeps_) round_.keep(r);
    to_.collective(r);
  }
  void step_fact(const StepRecord& r) override {
    if (keeps_) round_.keep(r);
    to_.step_fact(r);
  }
  void event_done(std::uint32_t rank, std::uint32_t event) override {
    if (keeps_) round_.keep_end(rank, event);
    to_.event_done(rank, event);
  }
  void observe(const Observation& o) override { to_.observe(o); }
  void reduction(const ReductionRecord& r) override { to_.reduction(r); }
  void memory(const MemoryRecord& r) override { to_.memory(r); }
  void unwritten(const UnwrittenRecord& r) override { to_.unwritten(r); }
  void engine_error(const EngineErrorRecord& r) override { to_.engine_error(r); }
  void deadlock(const DeadlockRecord& r) override { to_.deadlock(r); }
  void mismatch(const MismatchRecord& r) override { to_.mismatch(r); }
  void race(const RaceRecord& r) override { to_.race(r); }

 private:
  TraceSink& to_;
  TakesRounds* const takes_rounds_;
  bool keeps_ = false;
  KeptRound round_;
};

}  // namespace gradledger
