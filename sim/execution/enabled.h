// When the head of a stream may run: the rules that any executor of a program keeps, and any search of its orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "sim/program/program.h"

namespace gradledger {

// The host has passed every operation before its own head; what lies beyond is not enqueued yet.
inline bool enqueued(const StreamHeads& head, std::uint32_t op) { return head[0] == no_index || op < head[0]; }

// Whether the head of a stream may run, apart from peers. recorded(e): whether stream event e is. What may run once may run until it does:
// no stream can take that from another.
template <class Recorded>
bool may_run(const Program& program, const StreamHeads& heads, Stream stream, Recorded&& recorded) {
  const std::uint32_t head = heads[static_cast<std::size_t>(stream)];
  if (head == no_index) return false;
  if (stream != Stream::host && !enqueued(heads, head)) return false;
  const Op& op = program.ops[head];
  if (op.kind == OpKind::wait) return recorded(op.index);
  if (stream != Stream::host || op.kind != OpKind::synchronize) return true;
  for (std::size_t other = 1; other < stream_count; ++other)
    if (heads[other] != no_index && heads[other] < head) return false;
  return true;
}

// The stream whose next operation was enqueued first among those that may run; none where none may.
template <class Ready>
std::optional<Stream> first_ready(const StreamHeads& heads, Ready&& ready) {
  std::optional<Stream> first;
  for (std::size_t s = 0; s < stream_count; ++s)
    if (heads[s] != no_index && (!first || heads[s] < heads[static_cast<std::size_t>(*first)]) && ready(static_cast<Stream>(s))) first = static_cast<Stream>(s);
  return first;
}

}  // namespace gradledger
