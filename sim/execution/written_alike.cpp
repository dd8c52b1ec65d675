#include "sim/execution/written_alike.h"

#include <algorithm>

#include "sim/execution/happens_before.h"

namespace gradledger {

WrittenAlike::WrittenAlike(const Program& leader, const Program::Mark& since) : leader_(leader), since_(since), met_(leader.collectives.size() - since.collectives) {
  look_for_shares();
}

// ---- what the leader wrote -----------------------------------------------------------------------------------------------------------

void WrittenAlike::look_for_shares() {
  for (std::size_t at = since_.ops; at < leader_.ops.size() && sound_; ++at) visit(static_cast<std::uint32_t>(at));
  sound_ = sound_ && open_.empty();
  if (!sound_) places_.clear();
  filled_.resize(leader_.buffers.size());
  for (std::size_t at = since_.ops; at < leader_.ops.size(); ++at) look_for_gathered(static_cast<std::uint32_t>(at));
  std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) { return a.op < b.op; });
  for (std::size_t i = 0; i < places_.size(); ++i)
    if (places_[i].collective != no_index) collectives_.push_back(i);
}

void WrittenAlike::visit(std::uint32_t at) {
  const Op& op = leader_.ops[at];
  if (!open_.empty()) {
    const bool reads_share = op.kind == OpKind::copy || op.kind == OpKind::accumulate;
    const bool replaces = op.kind == OpKind::copy || op.kind == OpKind::fill || op.kind == OpKind::interleave || op.kind == OpKind::collective || op.kind == OpKind::release;
    each_access(
        op, leader_, [&](Slice s) { touch(s, at, false, reads_share); }, [&](Slice s) { touch(s, at, replaces, false); });
    if (op.kind == OpKind::allocate) touch(op.target, at, true, false);
    if (op.kind == OpKind::observe)
      for (const ViewPiece& piece : leader_.views[op.index].pieces) touch(piece.slice, at, false, false);
  }
  if (op.kind != OpKind::collective) return;
  const CollectiveCall& call = leader_.collectives[op.index];
  if (call.kind != CollectiveKind::reduce_scatter || call.input.buffer != call.output.buffer) return;
  if (call.output.offset < call.input.offset || call.output.offset + call.output.numel > call.input.offset + call.input.numel) return;
  open_.push_back(shares_.size());
  places_.push_back({at, op.index, shares_.size()});
  shares_.push_back({call.output});
}

void WrittenAlike::look_for_gathered(std::uint32_t at) {
  const Op& op = leader_.ops[at];
  if (op.kind == OpKind::collective) {
    const CollectiveCall& call = leader_.collectives[op.index];
    const Filled& filled = filled_[call.input.buffer];
    const auto in_share = [&](std::uint32_t copy) {
      const Slice& target = leader_.ops[copy].target;
      return target.offset >= call.input.offset && target.offset + target.numel <= call.input.offset + call.input.numel;
    };
    const bool in_place = call.kind == CollectiveKind::all_gather && call.input.buffer == call.output.buffer && call.output.offset == 0 &&
                          call.output.numel == leader_.buffers[call.output.buffer].numel;
    if (in_place && filled.by_copies && std::all_of(filled.copies.begin(), filled.copies.end(), in_share)) {
      for (const std::uint32_t copy : filled.copies) places_.push_back({copy, no_index, shares_.size(), true});
      places_.push_back({at, op.index, shares_.size(), true});
      shares_.push_back({call.input});
    }
  }
  note_filled(at);
}

void WrittenAlike::note_filled(std::uint32_t at) {
  const Op& op = leader_.ops[at];
  const auto spoil = [&](const Slice& slice) {
    if (slice.numel > 0) filled_[slice.buffer].by_copies = false;
  };
  if (op.kind == OpKind::allocate) {
    filled_[op.target.buffer] = {{}, true};
  } else if (op.kind == OpKind::copy) {
    spoil(op.source);
    filled_[op.target.buffer].copies.push_back(at);
  } else if (op.kind == OpKind::observe) {
    for (const ViewPiece& piece : leader_.views[op.index].pieces) spoil(piece.slice);
  } else {
    each_access(op, leader_, spoil, spoil);
  }
}

void WrittenAlike::touch(Slice slice, std::uint32_t at, bool replaces, bool may_read_share) {
  const auto of = std::find_if(open_.begin(), open_.end(), [&](std::size_t share) { return shares_[share].slice.buffer == slice.buffer; });
  if (of == open_.end() || slice.numel == 0) return;
  const Slice share = shares_[*of].slice;
  if (replaces && slice.offset == 0 && slice.numel == leader_.buffers[slice.buffer].numel) {
    open_.erase(of);
  } else if (may_read_share && slice.offset >= share.offset && slice.offset + slice.numel <= share.offset + share.numel) {
    places_.push_back({at, no_index, *of});
  } else {
    sound_ = false;
  }
}

std::vector<WrittenAlike::Move> WrittenAlike::moves() const {
  std::vector<Move> out;
  for (const Place& place : places_)
    if (const Share& share = shares_[place.share]; share.elements != 0) out.push_back({place.op, place.collective, share.elements, place.written});
  return out;
}

// ---- what another one wrote ------------------------------------------------------------------------------------------------------------

bool WrittenAlike::same(const Program& other, const Between& between) {
  between_ = between;
  tried_ = shares_;
  met_then_ = met_;
  next_op_ = 0;
  // Views of the same memory show what is a rank's own.
  const auto same_view = [](const View& a, const View& b, std::size_t) {
    return a.name == b.name && std::equal(a.pieces.begin(), a.pieces.end(), b.pieces.begin(), b.pieces.end(),
                                          [](const ViewPiece& x, const ViewPiece& y) { return x.slice == y.slice && (x.parameter < 0) == (y.parameter < 0); });
  };
  const bool alike = other.same_since(
      since_, leader_, [&](const Op& a, const Op& b, std::size_t at) { return same_op(a, b, at); },
      [&](const CollectiveCall& a, const CollectiveCall& b, std::size_t at) { return same_collective(a, b, at); }, same_view);
  if (!alike) return false;
  shares_.swap(tried_);
  met_.swap(met_then_);
  return true;
}

bool WrittenAlike::same_op(const Op& own, const Op& of_leader, std::size_t at) {
  Op moved = own;
  if (next_op_ < places_.size() && places_[next_op_].op == at) {
    const Place& place = places_[next_op_++];
    if (place.collective == no_index) {
      std::uint64_t& offset = place.written ? moved.target.offset : moved.source.offset;
      const std::uint64_t there = place.written ? of_leader.target.offset : of_leader.source.offset;
      if (!lies_as_far(place.share, offset, there)) return false;
      offset = there;
    }
  } else if (own.kind == OpKind::deposit && own.index == no_index && own.source.numel == of_leader.source.numel) {
    moved.source = of_leader.source;  // weights at the start
  }
  return moved == of_leader;
}

bool WrittenAlike::same_collective(const CollectiveCall& own, const CollectiveCall& of_leader, std::size_t at) {
  const auto number = std::lower_bound(collectives_.begin(), collectives_.end(), at, [&](std::size_t i, std::size_t collective) { return places_[i].collective < collective; });
  if (number == collectives_.end() || places_[*number].collective != at) {
    CollectiveCall there = own;
    there.group = of_leader.group;
    return there == of_leader && same_group(own, of_leader, at);
  }
  const Place* const place = &places_[*number];
  CollectiveCall moved = own;
  if (place->written) {
    if (!lies_as_far(place->share, own.input.offset, of_leader.input.offset)) return false;
    moved.input.offset = of_leader.input.offset;
    return moved == of_leader && own.input.offset + own.input.numel <= own.output.numel;
  }
  if (!lies_as_far(place->share, own.output.offset, of_leader.output.offset)) return false;
  moved.output.offset = of_leader.output.offset;
  return moved == of_leader && own.output.offset >= own.input.offset && own.output.offset + own.output.numel <= own.input.offset + own.input.numel;
}

bool WrittenAlike::same_group(const CollectiveCall& own, const CollectiveCall& of_leader, std::size_t at) {
  const bool together = own.group == of_leader.group;
  if (!together) {
    if (own.kind != CollectiveKind::all_reduce || !between_.families) return false;
    const GroupFamilies::Seat *seat = between_.families->seat(between_.rank, of_leader.group), *leader = between_.families->seat(between_.leader, of_leader.group);
    if (!seat || !leader || seat->group != own.group || seat->index != leader->index) return false;
  }
  Met& met = met_then_[at - since_.collectives];
  if (met == (together ? Met::apart : Met::together)) return false;
  met = together ? Met::together : Met::apart;
  return true;
}

bool WrittenAlike::lies_as_far(std::size_t of, std::uint64_t own, std::uint64_t of_leader) {
  Share& share = tried_[of];
  const auto further = static_cast<std::int64_t>(own - of_leader);
  if (!share.known) {
    if (between_.places == 0 || further % between_.places != 0) return false;
    share.known = true;
    share.elements = further / between_.places;
  }
  return further == between_.places * share.elements;
}

}  // namespace gradledger
