// What a round showed to a sink, and the same of a later round that nobody runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/execution/symbolic/steady_forms.h"
#include "sim/trace/producer.h"

namespace gradledger {

// Stands before the sink of a run and passes everything on.
class RoundRecorder final : public TraceSink {
 public:
  explicit RoundRecorder(TraceSink& to) : to_(to) {}

  // Forgets what it has; from now on it keeps what it passes on, or not.
  void keep(bool keeps) {
    keeps_ = keeps;
    entries_.clear();
    shown_.clear();
    pieces_.clear();
    form_of_.clear();
    forms_.clear();
    collectives_.clear();
    facts_.clear();
  }

  // What was kept, as of `more` rounds of so many events later. sequences: how many collectives of each group a rank calls in a round.
  void repeat(std::uint32_t more, std::uint32_t events, const std::vector<std::vector<std::uint32_t>>& sequences, SteadyForms& steady, LinearForms& forms) {
    std::vector<std::pair<FormId, std::span<const WeightTerm>>> later;
    for (const FormId form : forms_) {
      const FormId then = steady.shown_after(form, more);
      later.emplace_back(then, forms.terms(then));
    }
    for (std::size_t i = 0; i < pieces_.size(); ++i)
      if (pieces_[i].held == WeightPiece::Held::weights) std::tie(pieces_[i].form, pieces_[i].terms) = later[form_of_[i]];
    const std::uint32_t by = more * events;
    for (const Entry& entry : entries_) {
      switch (entry.kind) {
        case Kind::event_done: to_.event_done(entry.rank, entry.index + by); break;
        case Kind::fact: {
          StepRecord fact = facts_[entry.index];
          fact.event += by;
          to_.step_fact(fact);
          break;
        }
        case Kind::collective: {
          CollectiveRecord call = collectives_[entry.index];
          call.event += by;
          call.sequence += more * sequences[call.rank][call.group];
          to_.collective(call);
          break;
        }
        case Kind::weights: {
          WeightObservation shown = shown_[entry.index].observation;
          shown.event += by;
          shown.pieces = std::span(pieces_).subspan(shown_[entry.index].first, shown_[entry.index].count);
          to_.weights(shown);
          break;
        }
      }
    }
  }

  void weights(const WeightObservation& o) override {
    if (keeps_) keep_shown(o);
    to_.weights(o);
  }
  void collective(const CollectiveRecord& r) override {
    if (keeps_) {
      entries_.push_back({Kind::collective, r.rank, static_cast<std::uint32_t>(collectives_.size())});
      collectives_.push_back(r);
    }
    to_.collective(r);
  }
  void step_fact(const StepRecord& r) override {
    if (keeps_) {
      entries_.push_back({Kind::fact, r.rank, static_cast<std::uint32_t>(facts_.size())});
      facts_.push_back(r);
    }
    to_.step_fact(r);
  }
  void event_done(std::uint32_t rank, std::uint32_t event) override {
    if (keeps_) entries_.push_back({Kind::event_done, rank, event});
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
  enum class Kind : std::uint8_t { event_done, fact, collective, weights };
  struct Entry {
    Kind kind;
    std::uint32_t rank;
    std::uint32_t index;  // in the list of its kind; of event_done the event
  };
  struct Shown {
    WeightObservation observation;
    std::size_t first, count;  // pieces
  };

  void keep_shown(const WeightObservation& o) {
    entries_.push_back({Kind::weights, o.rank, static_cast<std::uint32_t>(shown_.size())});
    auto name = names_.find(o.buffer);
    if (name == names_.end()) name = names_.emplace(o.buffer).first;
    shown_.push_back({o, pieces_.size(), o.pieces.size()});
    shown_.back().observation.buffer = *name;
    for (const WeightPiece& piece : o.pieces) {
      pieces_.push_back(piece);
      form_of_.push_back(number_of(static_cast<FormId>(piece.form)));
    }
  }

  // Each form is worked out once for a round, whoever holds it.
  std::uint32_t number_of(FormId form) {
    if (numbers_.size() <= form) numbers_.resize(form + 1, 0);
    if (numbers_[form] >= forms_.size() || forms_[numbers_[form]] != form) {
      numbers_[form] = static_cast<std::uint32_t>(forms_.size());
      forms_.push_back(form);
    }
    return numbers_[form];
  }

  TraceSink& to_;
  bool keeps_ = false;
  std::vector<Entry> entries_;  // in the order in which they came
  std::vector<Shown> shown_;
  std::vector<WeightPiece> pieces_;     // of all of them
  std::vector<std::uint32_t> form_of_;  // of a piece, in the list of forms
  std::vector<FormId> forms_;
  std::vector<std::uint32_t> numbers_;  // by form: its place in that list, if it is there
  std::vector<CollectiveRecord> collectives_;
  std::vector<StepRecord> facts_;
  std::set<std::string, std::less<>> names_;
};

}  // namespace gradledger
