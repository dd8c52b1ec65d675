#include "ref/alike_in_round.h"

#include <algorithm>
#include <cstddef>

namespace gradledger::ref {

void contents_of(std::span<const WeightPiece> pieces, std::vector<std::uint64_t>& out) {
  out.clear();
  for (const WeightPiece& piece : pieces) out.insert(out.end(), {piece.numel, static_cast<std::uint64_t>(piece.held), piece.form, static_cast<std::uint64_t>(piece.shift)});
}

AlikeInRound::AlikeInRound(const KeptRound& round, std::span<const std::uint32_t> alike, DueTracker& tracker)
    : round_(round), alike_(alike), judged_as_(round.snapshots(), {nothing, 0}) {
  std::vector<std::vector<const KeptRound::Entry*>> by_rank;
  for (const KeptRound::Entry& entry : round.entries()) {
    if (entry.kind != KeptRound::Kind::weights && entry.kind != KeptRound::Kind::event_done) continue;
    if (by_rank.size() <= entry.rank) by_rank.resize(entry.rank + 1);
    by_rank[entry.rank].push_back(&entry);
  }
  for (const std::vector<const KeptRound::Entry*>& entries : by_rank) {
    const std::size_t first_thing = things_.size();
    find_things(entries);
    group(first_thing, tracker);
    for (const KeptRound::Entry* entry : entries) {
      if (entry->kind == KeptRound::Kind::event_done) acts_.push_back({entry->rank, nothing, entry->index});
      else if (const auto [of, number] = judged_as_[entry->index]; of != nothing) acts_.push_back({entry->rank, of, number});
    }
  }
}

void AlikeInRound::find_things(const std::vector<const KeptRound::Entry*>& entries) {
  const std::size_t first_thing = things_.size();
  std::vector<std::uint32_t> thing_of(round_.names(), nothing);
  for (const KeptRound::Entry* entry : entries) {
    if (entry->kind != KeptRound::Kind::weights) continue;
    std::uint32_t& thing = thing_of[round_.name_of(entry->index)];
    if (thing == nothing) {
      thing = static_cast<std::uint32_t>(things_.size());
      things_.push_back({entry->rank, 0, 0});
    }
    ++things_[thing].count;
  }
  auto first = static_cast<std::uint32_t>(snapshots_.size());
  for (std::size_t t = first_thing; t < things_.size(); ++t) {
    things_[t].first = first;
    first += std::exchange(things_[t].count, 0);
  }
  snapshots_.resize(first);
  for (const KeptRound::Entry* entry : entries) {
    if (entry->kind != KeptRound::Kind::weights) continue;
    Thing& thing = things_[thing_of[round_.name_of(entry->index)]];
    snapshots_[thing.first + thing.count++] = entry->index;
  }
}

// What it remembers of contents must be what one of the snapshots held, and those that it compares must be cut alike: whether they have changed is then
// told by their forms, whatever the number of elements.
AlikeInRound::Known AlikeInRound::known_of(const Thing& thing, DueTracker& tracker) const {
  const DueTracker::Buffer& buffer = tracker.known(thing.rank, round_.kept(snapshots_[thing.first]).buffer);
  Known out{buffer.appeared, buffer.last, nothing, buffer.role, false};
  std::vector<std::uint64_t> contents;
  std::span<const WeightPiece> compared;
  for (std::uint32_t number = 0; number < thing.count; ++number) {
    const std::uint32_t snapshot = snapshots_[thing.first + number];
    const WeightObservation& o = round_.kept(snapshot);
    const std::span<const WeightPiece> pieces = round_.pieces(snapshot);
    if (!o.at_end || (o.role != Role::reduced_accumulator && o.role != Role::master_gradient)) continue;
    out.lone = out.lone || (!compared.empty() && !std::equal(pieces.begin(), pieces.end(), compared.begin(), compared.end(),
                                                             [](const WeightPiece& a, const WeightPiece& b) { return a.numel == b.numel; }));
    compared = pieces;
    contents_of(pieces, contents);
    const std::span<const std::byte> bytes = std::as_bytes(std::span(contents));
    if (equal_bytes(bytes, buffer.bytes)) out.remembered = number;
  }
  out.lone = out.lone || (!buffer.bytes.empty() && out.remembered == nothing);
  return out;
}

void AlikeInRound::group(std::size_t first_thing, DueTracker& tracker) {
  constexpr std::size_t looked_at = 8;  // buffers that are alike are neighbours, or nearly so
  const std::size_t first_group = groups_.size();
  std::vector<Known> known;  // of the first things of the rank's groups
  for (std::size_t t = first_thing; t < things_.size(); ++t) {
    const Known of_this = known_of(things_[t], tracker);
    std::size_t at = groups_.size();
    for (std::size_t g = groups_.size(); !of_this.lone && g-- > first_group && groups_.size() - g <= looked_at;)
      if (known[g - first_group] == of_this && alike(things_[groups_[g].things.front()], things_[t])) {
        at = g;
        break;
      }
    if (at == groups_.size()) {
      Group& fresh = groups_.emplace_back();
      fresh.others.resize(things_[t].count, 0);
      fresh.remembered = of_this.remembered;
      fresh.apart = of_this.lone;
      known.push_back(of_this);
      for (std::uint32_t number = 0; number < things_[t].count; ++number) judged_as_[snapshots_[things_[t].first + number]] = {static_cast<std::uint32_t>(at), number};
    }
    groups_[at].things.push_back(static_cast<std::uint32_t>(t));
    for (std::uint32_t number = 0; number < things_[t].count; ++number)
      for (const WeightPiece& piece : round_.pieces(snapshot(static_cast<std::uint32_t>(t), number))) groups_[at].others[number] += piece.numel;
  }
  for (std::size_t g = first_group; g < groups_.size(); ++g)
    if (!groups_[g].apart) find_kinds(groups_[g]);
}

// Pieces that are alike in every snapshot. Where a buffer is cut otherwise in some of them, each piece is one of its own.
void AlikeInRound::find_kinds(Group& group) const {
  constexpr std::size_t looked_at = 4;
  const std::uint32_t thing = group.things.front(), count = things_[thing].count;
  const std::size_t size = round_.pieces(snapshot(thing, 0)).size();
  for (std::uint32_t number = 0; number < count; ++number)
    if (round_.pieces(snapshot(thing, number)).size() != size) {
      group.apart = true;
      return;
    }
  const auto alike_in_all = [&](std::size_t i, std::size_t j) {
    for (std::uint32_t number = 0; number < count; ++number)
      if (!pieces_alike(snapshot(thing, number), i, snapshot(thing, number), j)) return false;
    return true;
  };
  for (std::size_t i = 0; i < size; ++i) {
    bool known = false;
    for (std::size_t k = group.pieces.size(); k-- > 0 && group.pieces.size() - k <= looked_at && !known;) known = alike_in_all(group.pieces[k], i);
    if (!known) group.pieces.push_back(static_cast<std::uint32_t>(i));
  }
  if (group.things.size() == 1 && group.pieces.size() == size) group.apart = true;  // nothing is like anything
  for (std::uint32_t number = 0; number < count; ++number)
    for (const std::uint32_t i : group.pieces) group.others[number] -= round_.pieces(snapshot(thing, number))[i].numel;
}

bool AlikeInRound::alike(const Thing& a, const Thing& b) const {
  if (a.count != b.count) return false;
  for (std::uint32_t number = 0; number < a.count; ++number)
    if (!snapshots_alike(snapshots_[a.first + number], snapshots_[b.first + number])) return false;
  return true;
}

bool AlikeInRound::snapshots_alike(std::uint32_t a, std::uint32_t b) const {
  const WeightObservation &of_a = round_.kept(a), &of_b = round_.kept(b);
  const std::span<const WeightPiece> pieces_a = round_.pieces(a), pieces_b = round_.pieces(b);
  if (of_a.event != of_b.event || of_a.at_end != of_b.at_end || of_a.role != of_b.role || of_a.scale != of_b.scale || pieces_a.size() != pieces_b.size()) return false;
  for (std::size_t i = 0; i < pieces_a.size(); ++i)
    if (!pieces_alike(a, i, b, i)) return false;
  return true;
}

bool AlikeInRound::pieces_alike(std::uint32_t a, std::size_t i, std::uint32_t b, std::size_t j) const {
  const WeightPiece &x = round_.pieces(a)[i], &y = round_.pieces(b)[j];
  return x.held == y.held && x.shift == y.shift && x.constant == y.constant && round_.forms_of(a)[i] == round_.forms_of(b)[j] && alike_[x.parameter] == alike_[y.parameter];
}

}  // namespace gradledger::ref
