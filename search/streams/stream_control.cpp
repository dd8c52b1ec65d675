#include "search/streams/stream_control.h"

#include <algorithm>

#include "sim/execution/enabled.h"

namespace gradledger::search {
namespace {

bool overlap(const Access& a, const Access& b) {
  return (a.writes || b.writes) && a.slice.offset < b.slice.offset + b.slice.numel && b.slice.offset < a.slice.offset + a.slice.numel;
}

void add(std::vector<Access>& all, Slice slice, bool writes) {
  if (slice.buffer != no_index && slice.numel > 0) all.push_back({slice, writes});
}

void add_collective(std::vector<Access>& all, const CollectiveCall& call, bool delivers) {
  if (delivers) add(all, call.output, true);
  else add(all, call.input, false);
}

}  // namespace

std::vector<Access> accesses(const Program& program, std::uint32_t step) {
  const Op& op = program.ops[step / 2];
  std::vector<Access> all;
  all.reserve(4);
  switch (op.kind) {
    case OpKind::allocate:
    case OpKind::send:
    case OpKind::receive:
    case OpKind::record:
    case OpKind::wait:
    case OpKind::synchronize:
    case OpKind::observe:
    case OpKind::end_event: break;
    case OpKind::release:
    case OpKind::deposit:  // its source is a parameter's gradient, not a buffer
    case OpKind::fill:
    case OpKind::multiply:
    case OpKind::divide:
    case OpKind::square_root: add(all, op.target, true); break;
    case OpKind::copy:
    case OpKind::accumulate:
    case OpKind::squared_norm:
    case OpKind::check_finite:
      add(all, op.source, false);
      add(all, op.target, true);
      break;
    case OpKind::interleave:
      for (const Interleaving::Part& part : program.interleavings[op.index].parts) add(all, part.slice, false);
      add(all, op.target, true);
      break;
    case OpKind::part_rows:
      add(all, op.source, false);
      for (const Interleaving::Part& part : program.interleavings[op.index].parts) add(all, part.slice, true);
      break;
    case OpKind::sgd:
    case OpKind::adam: {
      const UpdateCall& call = program.updates[op.index];
      add(all, call.gradient, false);
      for (const Slice& state : {call.parameter, call.first_moment, call.second_moment}) add(all, state, true);
      break;
    }
    case OpKind::collective: add_collective(all, program.collectives[op.index], step % 2 != 0); break;
    case OpKind::read:
    case OpKind::report: add(all, op.source, false); break;
  }
  return all;
}

StreamControl::StreamControl(const Program& program)
    : program_(program),
      record_of_(program.stream_events, no_index),
      touches_(program.buffers.size()),
      conflicts_(2 * program.ops.size()),
      conflicts_known_(2 * program.ops.size(), 0) {
  for (std::uint32_t at = 0; at < program.ops.size(); ++at) {
    const Op& op = program.ops[at];
    if (op.kind == OpKind::record) record_of_[op.index] = at;
    for (const std::uint32_t step : {2 * at, 2 * at + 1}) {
      if (step % 2 != 0 && op.kind != OpKind::collective) continue;
      for (const Access& access : accesses(program, step)) touches_[access.slice.buffer].push_back({step, access});
    }
  }
}

bool StreamControl::recorded(const Progress& progress, std::uint32_t stream_event) const {
  const std::uint32_t record = record_of_[stream_event];
  if (record == no_index) return false;
  const std::uint32_t head = progress.head[static_cast<std::size_t>(program_.ops[record].stream)];
  return head == no_index || head > record;
}

bool StreamControl::enabled(const Progress& progress, Stream stream) const {
  switch (progress.phase[static_cast<std::size_t>(stream)]) {
    case Phase::contributed: return false;
    case Phase::deliverable: return true;
    case Phase::none: break;
  }
  const std::uint32_t head = progress.head[static_cast<std::size_t>(stream)];
  // A snapshot's own wait is not the framework's.
  if (head != no_index && program_.ops[head].kind == OpKind::synchronize && program_.ops[head].flag != 0) return true;
  return may_run(program_, progress.head, stream, [&](std::uint32_t e) { return recorded(progress, e); });
}

std::uint32_t StreamControl::number_of(const Progress& progress) {
  const auto number = numbers_.intern(std::as_bytes(std::span(&progress, 1)));
  if (number == progresses_.size()) {
    progresses_.push_back(progress);
    choices_.push_back(choices_of(progress));
  }
  return number;
}

StreamControl::Choices StreamControl::choices_of(const Progress& progress) {
  Choices choices;
  for (std::size_t s = 0; s < stream_count; ++s) {
    if (progress.phase[s] == Phase::contributed) choices.contributed |= static_cast<StreamSet>(1u << s);
    if (!enabled(progress, static_cast<Stream>(s))) continue;
    choices.enabled |= static_cast<StreamSet>(1u << s);
    const std::vector<std::uint32_t>& others = conflicts(next_step(progress, static_cast<Stream>(s)));
    if (others.empty()) continue;
    const StreamHeads reached = reach_without(progress, static_cast<Stream>(s));
    for (std::uint32_t other : others) {
      const Stream stream = program_.ops[other / 2].stream;
      const auto q = static_cast<std::size_t>(stream);
      if (progress.head[q] == no_index || other < next_step(progress, stream)) continue;  // over
      if (reached[q] == no_index || other < 2 * reached[q]) choices.meets[s] |= static_cast<StreamSet>(1u << q);
    }
  }
  return choices;
}

StreamHeads StreamControl::reach_without(const Progress& progress, Stream still) const {
  Progress reached = progress;
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < stream_count; ++s) {
      if (s == static_cast<std::size_t>(still)) continue;
      while (reached.head[s] != no_index && (reached.phase[s] != Phase::none || enabled(reached, static_cast<Stream>(s)))) {
        reached.phase[s] = Phase::none;
        reached.head[s] = program_.ops[reached.head[s]].next;
        moved = true;
      }
    }
  }
  return reached.head;
}

const std::vector<std::uint32_t>& StreamControl::conflicts(std::uint32_t step) {
  std::vector<std::uint32_t>& found = conflicts_[step];
  if (conflicts_known_[step] != 0) return found;
  conflicts_known_[step] = 1;
  const Stream stream = program_.ops[step / 2].stream;
  for (const Access& access : accesses(program_, step))
    for (const Touch& touch : touches_[access.slice.buffer])
      if (program_.ops[touch.step / 2].stream != stream && overlap(access, touch.access)) found.push_back(touch.step);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

Stream StreamControl::waits_for(const Progress& progress, Stream stream) const {
  const std::uint32_t head = progress.head[static_cast<std::size_t>(stream)];
  if (head == no_index) return stream;
  const Op& op = program_.ops[head];
  if (stream != Stream::host && !enqueued(progress.head, head)) return Stream::host;
  if (op.kind == OpKind::wait) {
    const std::uint32_t record = record_of_[op.index];
    return record == no_index ? stream : program_.ops[record].stream;
  }
  for (std::size_t other = 1; other < stream_count; ++other)  // a synchronize
    if (progress.head[other] != no_index && progress.head[other] < head) return static_cast<Stream>(other);
  return stream;
}

}  // namespace gradledger::search
