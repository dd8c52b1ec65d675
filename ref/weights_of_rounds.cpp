// Rounds that repeat, as the judge of weights takes them.
#include <algorithm>
#include <cstddef>

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
  if (round.round() == 1) round_ = std::make_unique<AlikeInRound>(round, alike_, book_.tracker());
  for (const AlikeInRound::Act& act : round_->acts()) {
    if (act.group == AlikeInRound::nothing) event_done(act.rank, act.number + round.events_later());
    else judge_for_all(round, round_->groups()[act.group], act.number);
  }
  // What is remembered stays within reach: it is of this round or of the one before.
  for (AlikeInRound::Group& group : round_->groups()) {
    if (group.apart || group.remembered == AlikeInRound::nothing || group.of_round == round.round()) continue;
    const AlikeInRound::Thing& first = round_->thing(group.things.front());
    catch_up(round, group, book_.tracker().known(first.rank, round.kept(round_->snapshot(group.things.front(), 0)).buffer));
    group.apart = true;
  }
}

void WeightsJudge::rounds_over(KeptRound& round) {
  for (const AlikeInRound::Group& group : round_->groups())
    if (!group.apart) catch_up(round, group, book_.tracker().known(round_->thing(group.things.front()).rank, round.kept(round_->snapshot(group.things.front(), 0)).buffer));
  round_.reset();
}

// One is judged as any snapshot is. What is more than a count of what balances or is not due is each buffer's own.
void WeightsJudge::judge_for_all(KeptRound& round, AlikeInRound::Group& group, std::uint32_t number) {
  const std::uint32_t first = group.things.front();
  if (group.apart || group.things.size() == 1) {
    for (const std::uint32_t thing : group.things) weights(round.snapshot(round_->snapshot(thing, number)));
    return;
  }
  const WeightObservation o = round.snapshot(round_->snapshot(first, number));
  JudgeStatistics& statistics = book_.statistics();
  const JudgeStatistics before = statistics;
  const std::size_t wrong_before = mismatches_.size();
  const DueTracker::Buffer& buffer = book_.tracker().known(o.rank, o.buffer);
  const DueTracker::Buffer seen_before{{}, buffer.appeared, buffer.last, buffer.role, {}};
  weights(o);
  const bool own = mismatches_.size() != wrong_before || statistics.inconclusive != before.inconclusive || o.role == Role::applied_gradient || timeline_.is_boundary(o.event) ||
                   timeline_.contract.approximation;
  if (own) {
    catch_up(round, group, seen_before);
    group.apart = true;
    for (const std::uint32_t thing : group.things)
      if (thing != first) weights(round.snapshot(round_->snapshot(thing, number)));
    return;
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

// The others, of which nothing was looked at, are brought to where the first one was.
void WeightsJudge::catch_up(KeptRound& round, const AlikeInRound::Group& group, const DueTracker::Buffer& first) {
  for (const std::uint32_t thing : group.things) {
    if (thing == group.things.front()) continue;
    const std::uint32_t shown = round_->snapshot(thing, group.remembered == AlikeInRound::nothing ? 0 : group.remembered);
    DueTracker::Buffer& buffer = book_.tracker().known(round_->thing(thing).rank, round.kept(shown).buffer);
    buffer.appeared = first.appeared;
    buffer.last = first.last;
    buffer.role = first.role;
    if (group.remembered == AlikeInRound::nothing) continue;
    contents_of(round.snapshot(shown, group.of_round != round.round()).pieces, contents_);
    const std::span<const std::byte> bytes = std::as_bytes(std::span(contents_));
    buffer.bytes.assign(bytes.begin(), bytes.end());
  }
}

}  // namespace gradledger::ref
