#include "sim/execution/written_alike.h"

#include <algorithm>

#include "sim/execution/happens_before.h"

namespace gradledger {

WrittenAlike::WrittenAlike(const Program& leader, const Program::Mark& since) : leader_(leader), since_(since) { look_for_shares(); }

// ---- what the leader wrote -----------------------------------------------------------------------------------------------------------

void WrittenAlike::look_for_shares() {
  for (std::size_t at = since_.ops; at < leader_.ops.size() && sound_; ++at) visit(static_cast<std::uint32_t>(at));
  sound_ = sound_ && open_.empty();
  if (!sound_) places_.clear();
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
    if (const Share& share = shares_[place.share]; share.elements != 0) out.push_back({place.op, place.collective, share.elements});
  return out;
}

// ---- what another one wrote ------------------------------------------------------------------------------------------------------------

bool WrittenAlike::same(const Program& other, std::int64_t places) {
  distance_ = places;
  tried_ = shares_;
  next_op_ = 0;
  // Views of the same memory show what is a rank's own.
  const auto same_view = [](const View& a, const View& b, std::size_t) {
    return a.name == b.name && std::equal(a.pieces.begin(), a.pieces.end(), b.pieces.begin(), b.pieces.end(),
                                          [](const ViewPiece& x, const ViewPiece& y) { return x.slice == y.slice && (x.parameter < 0) == (y.parameter < 0); });
  };
  const bool alike = other.same_since(
      since_, leader_, [&](const Op& a, const Op& b, std::size_t at) { return same_op(a, b, at); },
      [&](const CollectiveCall& a, const CollectiveCall& b, std::size_t at) { return same_collective(a, b, at); }, same_view);
  if (alike) shares_ = tried_;
  return alike;
}

bool WrittenAlike::same_op(const Op& own, const Op& of_leader, std::size_t at) {
  Op moved = own;
  if (next_op_ < places_.size() && places_[next_op_].op == at) {
    const Place& place = places_[next_op_++];
    if (place.collective == no_index) {
      if (!lies_as_far(place.share, own.source.offset, of_leader.source.offset)) return false;
      moved.source.offset = of_leader.source.offset;
    }
  } else if (own.kind == OpKind::deposit && own.index == no_index && own.source.numel == of_leader.source.numel) {
    moved.source = of_leader.source;  // weights at the start
  }
  return moved == of_leader;
}

bool WrittenAlike::same_collective(const CollectiveCall& own, const CollectiveCall& of_leader, std::size_t at) {
  const auto place = std::find_if(places_.begin(), places_.end(), [&](const Place& p) { return p.collective == at; });
  if (place == places_.end()) return own == of_leader;
  if (!lies_as_far(place->share, own.output.offset, of_leader.output.offset)) return false;
  CollectiveCall moved = own;
  moved.output.offset = of_leader.output.offset;
  return moved == of_leader && own.output.offset >= own.input.offset && own.output.offset + own.output.numel <= own.input.offset + own.input.numel;
}

bool WrittenAlike::lies_as_far(std::size_t of, std::uint64_t own, std::uint64_t of_leader) {
  Share& share = tried_[of];
  const auto further = static_cast<std::int64_t>(own - of_leader);
  if (!share.known) {
    if (distance_ == 0 || further % distance_ != 0) return false;
    share.known = true;
    share.elements = further / distance_;
  }
  return further == distance_ * share.elements;
}

}  // namespace gradledger
