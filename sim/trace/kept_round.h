// What a run showed in a round of events, kept so that rounds that do the same can be shown again and need not run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/base/numbered_names.h"
#include "sim/trace/producer.h"

namespace gradledger {

class KeptRound {
 public:
  enum class Kind : std::uint8_t { event_done, fact, collective, weights };
  struct Entry {
    Kind kind;
    std::uint32_t rank;
    std::uint32_t index;  // in the list of its kind; of event_done the event
  };
  // A form, and the terms that it stands for.
  using Form = std::pair<std::uint64_t, std::span<const WeightTerm>>;

  void clear() {
    entries_.clear();
    snapshots_.clear();
    pieces_.clear();
    form_of_.clear();
    forms_.clear();
    collectives_.clear();
    facts_.clear();
    now_.clear();
    before_.clear();
    round_ = 0;
  }
  void keep(const WeightObservation& o) {
    entries_.push_back({Kind::weights, o.rank, static_cast<std::uint32_t>(snapshots_.size())});
    const std::uint32_t name = names_.number_of(o.buffer);
    snapshots_.push_back({o, pieces_.size(), o.pieces.size(), name});
    snapshots_.back().observation.buffer = names_[name];
    for (const WeightPiece& piece : o.pieces) {
      pieces_.push_back(piece);
      form_of_.push_back(number_of(piece));
    }
  }
  void keep(const CollectiveRecord& r) {
    entries_.push_back({Kind::collective, r.rank, static_cast<std::uint32_t>(collectives_.size())});
    collectives_.push_back(r);
  }
  void keep(const StepRecord& r) {
    entries_.push_back({Kind::fact, r.rank, static_cast<std::uint32_t>(facts_.size())});
    facts_.push_back(r);
  }
  void keep_end(std::uint32_t rank, std::uint32_t event) { entries_.push_back({Kind::event_done, rank, event}); }

  // ---- which round it stands for: 0 is the one that was kept
  const std::vector<Form>& forms() const { return forms_; }  // each that it held, once
  // forms: of the round, in the place of those that were kept. sequences: how many collectives of each group a rank calls in a round.
  void move_on(std::vector<Form> forms, std::uint32_t events, const std::vector<std::vector<std::uint32_t>>* sequences) {
    before_ = round_ == 0 ? forms_ : std::move(now_);
    now_ = std::move(forms);
    events_ = events;
    sequences_ = sequences;
    ++round_;
  }
  std::uint32_t round() const { return round_; }
  std::uint32_t events_later() const { return round_ * events_; }

  std::span<const Entry> entries() const { return entries_; }  // in the order in which they came
  std::size_t snapshots() const { return snapshots_.size(); }
  std::size_t names() const { return names_.size(); }
  std::uint32_t name_of(std::uint32_t snapshot) const { return snapshots_[snapshot].name; }        // of its buffer, numbered
  const CollectiveRecord& collective(std::uint32_t number) const { return collectives_[number]; }  // as it was kept
  // As it was kept, but for what its pieces hold: equal numbers of forms stand for equal forms in each round.
  const WeightObservation& kept(std::uint32_t snapshot) const { return snapshots_[snapshot].observation; }
  std::span<const WeightPiece> pieces(std::uint32_t snapshot) const { return std::span(pieces_).subspan(snapshots_[snapshot].first, snapshots_[snapshot].count); }
  std::span<const std::uint32_t> forms_of(std::uint32_t snapshot) const { return std::span(form_of_).subspan(snapshots_[snapshot].first, snapshots_[snapshot].count); }

  const Form& form(std::uint32_t number, bool in_the_one_before = false) const { return round_ == 0 ? forms_[number] : in_the_one_before ? before_[number] : now_[number]; }
  // As it is in this round, or in the one before. Valid until the next call.
  WeightObservation snapshot(std::uint32_t of, bool in_the_one_before = false) {
    const Snapshot& kept = snapshots_[of];
    WeightObservation shown = kept.observation;
    shown.event += (round_ - in_the_one_before) * events_;
    for (std::size_t i = kept.first; i < kept.first + kept.count; ++i)
      if (pieces_[i].held == WeightPiece::Held::weights) std::tie(pieces_[i].form, pieces_[i].terms) = form(form_of_[i], in_the_one_before);
    shown.pieces = pieces(of);
    return shown;
  }
  void show(TraceSink& to, bool with_snapshots = true) {
    for (const Entry& entry : entries_) {
      switch (entry.kind) {
        case Kind::event_done: to.event_done(entry.rank, entry.index + events_later()); break;
        case Kind::fact: {
          StepRecord fact = facts_[entry.index];
          fact.event += events_later();
          to.step_fact(fact);
          break;
        }
        case Kind::collective: {
          CollectiveRecord call = collectives_[entry.index];
          call.event += events_later();
          if (round_ > 0) call.sequence += round_ * (*sequences_)[call.rank][call.line()];
          to.collective(call);
          break;
        }
        case Kind::weights:
          if (with_snapshots) to.weights(snapshot(entry.index));
          break;
      }
    }
  }

 private:
  struct Snapshot {
    WeightObservation observation;
    std::size_t first, count;  // pieces
    std::uint32_t name;
  };

  std::uint32_t number_of(const WeightPiece& piece) {
    if (numbers_.size() <= piece.form) numbers_.resize(piece.form + 1, 0);
    std::uint32_t& number = numbers_[piece.form];
    if (number >= forms_.size() || forms_[number].first != piece.form) {
      number = static_cast<std::uint32_t>(forms_.size());
      forms_.emplace_back(piece.form, piece.terms);
    }
    return number;
  }

  std::vector<Entry> entries_;
  std::vector<Snapshot> snapshots_;
  std::vector<WeightPiece> pieces_;     // of all of them
  std::vector<std::uint32_t> form_of_;  // of a piece, in the list of forms
  std::vector<Form> forms_, now_, before_;
  std::vector<std::uint32_t> numbers_;  // by form: its place in that list, if it is there
  std::vector<CollectiveRecord> collectives_;
  std::vector<StepRecord> facts_;
  NumberedNames names_;  // ranks show the same buffers in the same order
  std::uint32_t round_ = 0, events_ = 0;
  const std::vector<std::vector<std::uint32_t>>* sequences_ = nullptr;
};

// A sink that is one of these too is given a round that repeats the one before it as a whole, and need not look at each snapshot.
class TakesRounds {
 public:
  virtual ~TakesRounds() = default;
  // Precondition: what was kept has been shown to it, and so have the rounds between.
  virtual void round_again(KeptRound& round) = 0;
  // No more of them follow.
  virtual void rounds_over(KeptRound& /*round*/) {}
};

}  // namespace gradledger
