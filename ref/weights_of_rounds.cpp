// Rounds that repeat, as the judge of weights takes them.
#include <algorithm>
#include <cstddef>
#include <span>
#include <tuple>

#include "ref/weights_judge.h"

namespace gradledger::ref {
namespace {

// Contents that the tracker compares: of what was reduced.
bool is_compared(const WeightObservation& o) { return o.at_end && (o.role == Role::reduced_accumulator || o.role == Role::master_gradient); }

std::uint64_t comparisons(const JudgeStatistics& statistics) {
  return statistics.snapshots + statistics.not_due[static_cast<std::size_t>(NotDue::left_over)] + statistics.not_due[static_cast<std::size_t>(NotDue::unchanged)];
}

}  // namespace

void WeightsJudge::round_again(KeptRound& round) {
  if (round.round() == 1) begin_rounds(round);
  for (const AlikeInRound::Act& act : round_->acts()) {
    if (act.group == AlikeInRound::nothing) event_done(act.rank, act.number + round.events_later());
    else judge_for_all(round, round_->groups()[act.group], act.number);
  }
  // What is remembered stays within reach: it is of this round or of the one before.
  for (AlikeInRound::Group& group : round_->groups())
    if (!group.apart && group.remembered != AlikeInRound::nothing && group.of_round != round.round()) set_apart(round, group, buffer_of(round, group.things.front()));
}

void WeightsJudge::rounds_over(KeptRound& round) {
  for (AlikeInRound::Group& group : round_->groups())
    if (!group.apart) set_apart(round, group, buffer_of(round, group.things.front()));
  round_.reset();
}

// The tracker remembers one piece of each kind in the place of a whole buffer.
void WeightsJudge::begin_rounds(KeptRound& round) {
  round_ = std::make_unique<AlikeInRound>(round, ledger_.alike(), book_.tracker());
  for (AlikeInRound::Group& group : round_->groups()) {
    if (group.apart || group.remembered == AlikeInRound::nothing) continue;
    remember(buffer_of(round, group.things.front()), of_each_kind(round, group, group.remembered, true).pieces);
  }
}

DueTracker::Buffer& WeightsJudge::buffer_of(const KeptRound& round, std::uint32_t thing) {
  return book_.tracker().known(round_->thing(thing).rank, round.kept(round_->snapshot(thing, 0)).buffer);
}

void WeightsJudge::remember(DueTracker::Buffer& buffer, std::span<const WeightPiece> pieces) {
  contents_of(pieces, contents_);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(contents_));
  buffer.bytes.assign(bytes.begin(), bytes.end());
}

WeightObservation WeightsJudge::of_each_kind(const KeptRound& round, const AlikeInRound::Group& group, std::uint32_t number, bool in_the_round_before) {
  const std::uint32_t snapshot = round_->snapshot(group.things.front(), number);
  WeightObservation out = round.kept(snapshot);
  out.event += round.events_later();
  kinds_.clear();
  for (const std::uint32_t i : group.pieces) {
    WeightPiece& piece = kinds_.emplace_back(round.pieces(snapshot)[i]);
    if (piece.held == WeightPiece::Held::weights) std::tie(piece.form, piece.terms) = round.form(round.forms_of(snapshot)[i], in_the_round_before);
  }
  out.pieces = kinds_;
  return out;
}

// One is judged as any snapshot is, and what it adds to the counts is added for the others. Whatever is more than a count is each buffer's own.
void WeightsJudge::judge_for_all(KeptRound& round, AlikeInRound::Group& group, std::uint32_t number) {
  const auto judge_each = [&] {
    for (const std::uint32_t thing : group.things) weights(round.snapshot(round_->snapshot(thing, number)));
  };
  if (group.apart) return judge_each();
  const WeightObservation o = of_each_kind(round, group, number);
  const DueTracker::Buffer& buffer = book_.tracker().known(o.rank, o.buffer);
  const DueTracker::Buffer seen_before{{}, buffer.appeared, buffer.last, buffer.role, {}};
  JudgeStatistics& statistics = book_.statistics();
  const JudgeStatistics before = statistics;
  const std::size_t wrong_before = mismatches_.size();
  const bool lists = o.role == Role::applied_gradient || timeline_.is_boundary(o.event) || timeline_.contract.approximation;
  if (!lists) weights(o);
  if (lists || mismatches_.size() != wrong_before || statistics.inconclusive != before.inconclusive) {
    statistics = before;
    mismatches_.resize(wrong_before);
    set_apart(round, group, seen_before);
    return judge_each();
  }
  if (is_compared(o) && comparisons(statistics) != comparisons(before)) {
    group.remembered = number;
    group.of_round = round.round();
  }
  const std::uint64_t others = group.things.size() - 1;
  for (std::size_t reason = 0; reason < reasons_not_due; ++reason) statistics.not_due[reason] += (statistics.not_due[reason] - before.not_due[reason]) * others;
  if (statistics.snapshots == before.snapshots) return;
  statistics.snapshots += others;
  statistics.elements += group.others[number];
}

// All are brought to where the one was that was looked at for them.
void WeightsJudge::set_apart(KeptRound& round, AlikeInRound::Group& group, const DueTracker::Buffer& seen) {
  const DueTracker::Buffer to{{}, seen.appeared, seen.last, seen.role, {}};
  for (const std::uint32_t thing : group.things) {
    DueTracker::Buffer& buffer = buffer_of(round, thing);
    buffer.appeared = to.appeared;
    buffer.last = to.last;
    buffer.role = to.role;
    if (group.remembered == AlikeInRound::nothing) buffer.bytes.clear();
    else remember(buffer, round.snapshot(round_->snapshot(thing, group.remembered), group.of_round != round.round()).pieces);
  }
  group.apart = true;
}

}  // namespace gradledger::ref
