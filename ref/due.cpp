#include "ref/due.h"

#include <algorithm>
#include <utility>

#include "sim/base/hash.h"

namespace gradledger::ref {

std::string_view name_of(NotDue reason) {
  switch (reason) {
    case NotDue::scratch: return "scratch";
    case NotDue::unchanged: return "unchanged";
    case NotDue::left_over: return "left over";
    case NotDue::interrupted: return "interrupted";
    case NotDue::touched: return "changed by the loop";
    case NotDue::in_parts: return "reduced in parts";
    case NotDue::apart: return "reduced by some ranks";
    case NotDue::mixed: return "own and averaged in one";
    case NotDue::zeros: return "zeros inside a backward";
  }
  return "";
}

Due DueTracker::of(const Observation& o) {
  std::vector<std::span<const std::byte>> contents;
  for (const ObservedPiece& piece : o.pieces)
    if (piece.parameter >= 0) contents.emplace_back(piece.data, std::size_t{piece.numel} * size_of(piece.dtype));
  return of({o.rank, o.event, o.at_end, o.buffer, o.role, {}, contents});
}

Due DueTracker::of(const Shown& o) {
  if (!holds_gradients(o.role)) return {NotDue::scratch};
  const Event& event = timeline_.events[o.event];
  // Its ranks stopped in the middle of something. A real framework's buffers are not looked at there.
  if (o.at_end && ranks_[o.rank].raised == o.event && event.is<events::Backward>()) return {NotDue::interrupted};
  ranks_[o.rank].shown = o.event;
  if (o.at_end && event.is<events::Raise>() && o.role != Role::local_accumulator) return {NotDue::interrupted};
  if (o.role == Role::applied_gradient) return o.zeros && !o.at_end && event.is<events::Backward>() ? Due{NotDue::zeros} : Due{};
  if (timeline_.touched_at(o.event, o.at_end)) return {NotDue::touched};
  if (timeline_.contract.reduces_in_parts) return {NotDue::in_parts};
  if (timeline_.apart_at(o.event, o.at_end)) return {NotDue::apart};
  if (timeline_.contract.mixes_own_and_averaged) return {NotDue::mixed};
  if (!o.at_end || o.role == Role::replicated_accumulator) return {};
  Rank& rank = ranks_[o.rank];
  Buffer& buffer = known(rank, o.buffer);
  // Gone and made anew where the event before did not show it, or showed something else in its place: a shard of an average, where a whole sum is now.
  if (buffer.last == never || buffer.last != rank.last_event || buffer.role != o.role) buffer.appeared = std::min(o.event, rank.hidden_since);
  buffer.last = o.event;
  buffer.role = o.role;
  if (o.role == Role::local_accumulator) {
    return {{}, timeline_.taken_before(buffer.appeared, event.documented)};
  }
  const bool fresh = changes(buffer, o.contents);
  const bool closes = timeline_.closes(event, Layer::documented);
  // The master gradient is filled at boundaries; until the first of the window it is what the run began with, or the last window's.
  const std::uint32_t filled =
      o.role == Role::master_gradient ? timeline_.boundary_before(o.event + 1, event.documented) : timeline_.reduction_before(o.event + 1, event.documented);
  const bool reduced = !closes && filled != never;
  if (fresh) buffer.judged = false;
  if (!reduced) return {NotDue::left_over};
  return std::exchange(buffer.judged, true) ? Due{NotDue::unchanged} : Due{};
}

// A producer may show nothing of an event that raised, though buffers are there: it is as if that event had gone on to the next.
void DueTracker::event_done(std::uint32_t rank, std::uint32_t event) {
  Rank& of = ranks_[rank];
  if (of.raised == event && of.shown != event) {
    of.hidden_since = std::min(of.hidden_since, event);
    return;
  }
  of.last_event = event;
  of.hidden_since = never;
}

DueTracker::Buffer& DueTracker::known(Rank& rank, std::string_view name) {
  std::vector<Buffer>& buffers = rank.buffers;
  const std::size_t guess = buffers.empty() ? 0 : buffers[rank.last].followed_by;
  std::size_t at = guess;
  if (guess >= buffers.size() || buffers[guess].name != name) {
    const std::uint64_t hash = PairHash::of(name);
    at = rank.by_name.find(hash, [&](std::uint32_t known) { return buffers[known].name == name; });
    if (at == HashIndex::none) {
      at = rank.by_name.add(hash);
      buffers.emplace_back().name = name;
      buffers.back().followed_by = at + 1;
    }
  }
  buffers[rank.last].followed_by = at;
  rank.last = at;
  return buffers[at];
}

// Whether the contents differ from those that were seen last, which are then forgotten.
bool DueTracker::changes(Buffer& buffer, std::span<const std::span<const std::byte>> contents) {
  bool same = true;
  std::size_t at = 0;
  for (const std::span<const std::byte> stretch : contents) {
    same = same && at + stretch.size() <= buffer.bytes.size() && equal_bytes(stretch, std::span(buffer.bytes).subspan(at, stretch.size()));
    at += stretch.size();
  }
  if (same && at == buffer.bytes.size()) return false;
  buffer.bytes.clear();
  for (const std::span<const std::byte> stretch : contents) buffer.bytes.insert(buffer.bytes.end(), stretch.begin(), stretch.end());
  return true;
}

}  // namespace gradledger::ref
