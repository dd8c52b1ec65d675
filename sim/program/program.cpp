#include "sim/program/program.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sim/base/hash.h"

namespace gradledger {

std::string_view name_of(Stream stream) {
  switch (stream) {
    case Stream::host: return "host";
    case Stream::compute: return "compute";
    case Stream::communication: return "communication";
    case Stream::copy: return "copy";
    case Stream::side: return "side";
    case Stream::all_gather: return "all-gather";
    case Stream::all_reduce: return "all-reduce";
  }
  return "";
}

std::string_view name_of(OpKind kind) {
  constexpr std::array<std::string_view, 25> names{"allocate", "release",      "deposit",     "fill",         "copy",    "interleave", "part_rows",  "accumulate", "multiply",
                                                   "divide",   "squared_norm", "square_root", "check_finite", "sgd",     "adam",       "collective", "send",       "receive",
                                                   "record",   "wait",         "synchronize", "read",         "observe", "report",     "end_event"};
  return names[static_cast<std::size_t>(kind)];
}

// ---- marks -------------------------------------------------------------------------------------------------------------------------

Program::Mark Program::mark() const {
  return {ops.size(), buffers.size(), collectives.size(), interleavings.size(), updates.size(), views.size(), next_interleaving, stream_events,
          first,      last,           host_has_seen,      line_sequences};
}

void Program::back_to(const Mark& mark) {
  ops.cut(mark.ops);
  for (const std::uint32_t at : mark.last)
    if (at != no_index) ops[at].next = no_index;
  buffers.resize(mark.buffers);
  collectives.resize(mark.collectives);
  interleavings.resize(mark.interleavings);
  updates.resize(mark.updates);
  next_interleaving = mark.next_interleaving;
  stream_events = mark.stream_events;
  first = mark.first;
  last = mark.last;
  host_has_seen = mark.host_has_seen;
  line_sequences = mark.line_sequences;
}

void Program::catch_up(const Program& other) {
  const auto take = [](auto& own, const auto& more) {
    for (std::size_t i = own.size(); i < more.size(); ++i) own.push_back(more[i]);
  };
  for (const std::uint32_t at : last)
    if (at != no_index) ops[at].next = other.ops[at].next;
  take(ops, other.ops);
  take(buffers, other.buffers);
  take(collectives, other.collectives);
  take(interleavings, other.interleavings);
  take(updates, other.updates);
  next_interleaving = other.next_interleaving;
  stream_events = other.stream_events;
  first = other.first;
  last = other.last;
  host_has_seen = other.host_has_seen;
  line_sequences = other.line_sequences;
}

// ---- what engines write --------------------------------------------------------------------------------------------------------------

BufferId ProgramWriter::declare(std::string name, Dtype dtype, std::uint64_t numel, MemorySpace space, std::uint64_t declared_numel) {
  BufferDeclaration declaration{std::move(name), dtype, numel, space, 0, dtype};
  if (program_->wide && dtype != Dtype::uint8 && dtype != Dtype::int32) declaration.stored = Dtype::float64;
  declaration.declared_bytes = std::max(numel, declared_numel) * size_of(dtype);
  program_->buffers.push_back(std::move(declaration));
  return static_cast<BufferId>(program_->buffers.size() - 1);
}

ViewId ProgramWriter::view(std::string_view name, std::vector<ViewPiece> pieces) {
  std::vector<View>& views = program_->views;
  if (next_view_ < views.size() && views[next_view_].name == name && views[next_view_].pieces == pieces) return next_view_++;
  const std::uint64_t hash = PairHash::of(name);
  ViewId id = program_->views_by_name.find(hash, [&](ViewId known) { return views[known].name == name && views[known].pieces == pieces; });
  if (id == HashIndex::none) {
    id = program_->views_by_name.add(hash);
    views.push_back({std::string(name), std::move(pieces)});
  }
  next_view_ = id + 1;
  return id;
}

Op& ProgramWriter::emit_on(Stream stream, OpKind kind) {
  const auto at = static_cast<std::uint32_t>(program_->ops.size());
  const auto s = static_cast<std::size_t>(stream);
  if (program_->last[s] != no_index) program_->ops[program_->last[s]].next = at;
  else program_->first[s] = at;
  program_->last[s] = at;
  Op& op = program_->ops.emplace_back();
  op.kind = kind;
  op.stream = stream;
  op.event = event_;
  return op;
}

Op& ProgramWriter::emit(OpKind kind) { return emit_on(stream_, kind); }

std::uint32_t ProgramWriter::record() {
  const std::uint32_t stream_event = program_->stream_events++;
  emit(OpKind::record).index = stream_event;
  return stream_event;
}

void ProgramWriter::wait(std::uint32_t stream_event) { emit(OpKind::wait).index = stream_event; }

void ProgramWriter::send(std::int32_t places, std::uint8_t line) {
  Op& op = emit(OpKind::send);
  op.index = static_cast<std::uint32_t>(places);
  op.flag = line;
}

void ProgramWriter::receive(std::int32_t places, std::uint8_t line) {
  Op& op = emit_on(Stream::host, OpKind::receive);
  op.index = static_cast<std::uint32_t>(places);
  op.flag = line;
}

void ProgramWriter::synchronize(bool for_snapshot) {
  emit_on(Stream::host, OpKind::synchronize).flag = for_snapshot;
  if (!for_snapshot) program_->host_has_seen.fill(position());
}

void ProgramWriter::host_waits() {
  const std::uint32_t reached = record();
  emit_on(Stream::host, OpKind::wait).index = reached;
  program_->host_has_seen[static_cast<std::size_t>(stream_)] = position();
}

void ProgramWriter::deposit(Slice target, std::uint32_t backward, std::uint32_t parameter, std::uint64_t offset, double factor, bool add) {
  Op& op = emit(OpKind::deposit);
  op.target = target;
  op.source = {parameter, offset, target.numel};
  op.index = backward;
  op.scalar = factor;
  op.flag = add;
}

void ProgramWriter::fill(Slice target, double value) {
  Op& op = emit(OpKind::fill);
  op.target = target;
  op.scalar = value;
}

void ProgramWriter::copy(Slice target, Slice source) {
  expects(target.numel == source.numel, "a copy between slices of different length");
  Op& op = emit(OpKind::copy);
  op.target = target;
  op.source = source;
}

void ProgramWriter::copy_over_the_bus(Slice target, Slice source, bool pinned) {
  copy(target, source);
  if (!pinned) host_waits();
}

std::uint32_t ProgramWriter::index_of(Slice rows_of_chunks, Interleaving of) {
  expects(rows_of_chunks.numel == of.numel(), "an interleaving of another length than its rows");
  // A framework that does the same again often does it in the same order.
  std::uint32_t& next = program_->next_interleaving;
  next = program_->interleavings.index_of(std::move(of), next);
  return next++;
}

void ProgramWriter::interleave(Slice target, Interleaving of) {
  const std::uint32_t index = index_of(target, std::move(of));
  Op& op = emit(OpKind::interleave);
  op.target = target;
  op.index = index;
}

void ProgramWriter::part_rows(Slice source, Interleaving of) {
  const std::uint32_t index = index_of(source, std::move(of));
  Op& op = emit(OpKind::part_rows);
  op.source = source;
  op.index = index;
}

void ProgramWriter::accumulate(Slice target, Slice source) {
  expects(target.numel == source.numel, "an accumulation between slices of different length");
  Op& op = emit(OpKind::accumulate);
  op.target = target;
  op.source = source;
}

void ProgramWriter::multiply(Slice target, double factor) {
  Op& op = emit(OpKind::multiply);
  op.target = target;
  op.scalar = factor;
}

void ProgramWriter::divide(Slice target, double divisor) {
  Op& op = emit(OpKind::divide);
  op.target = target;
  op.scalar = divisor;
}

void ProgramWriter::squared_norm(Slice scalar, Slice source) {
  Op& op = emit(OpKind::squared_norm);
  op.target = scalar;
  op.source = source;
}

void ProgramWriter::square_root(Slice scalar) { emit(OpKind::square_root).target = scalar; }

void ProgramWriter::check_finite(Slice flag, Slice source) {
  Op& op = emit(OpKind::check_finite);
  op.target = flag;
  op.source = source;
}

void ProgramWriter::sgd(const UpdateCall& call) {
  program_->updates.push_back(call);
  emit(OpKind::sgd).index = static_cast<std::uint32_t>(program_->updates.size() - 1);
}

void ProgramWriter::adam(const UpdateCall& call) {
  program_->updates.push_back(call);
  emit(OpKind::adam).index = static_cast<std::uint32_t>(program_->updates.size() - 1);
}

void ProgramWriter::collective(const CollectiveCall& call) {
  expects(call.communicator < communicators_max, "a group has not so many communicators");
  std::vector<std::uint32_t>& sequences = program_->line_sequences;
  if (sequences.size() <= call.line()) sequences.resize(call.line() + 1, 0);
  program_->collectives.push_back(call);
  program_->collectives.back().sequence = sequences[call.line()]++;
  emit(OpKind::collective).index = static_cast<std::uint32_t>(program_->collectives.size() - 1);
}

void ProgramWriter::read(Slice scalar, std::uint32_t stage) {
  host_waits();
  Op& op = emit_on(Stream::host, OpKind::read);
  op.source = scalar;
  op.index = stage;
}

void ProgramWriter::observe(ViewId view, Role role, double scale, bool at_end) {
  Op& op = at_end ? emit_on(Stream::host, OpKind::observe) : emit(OpKind::observe);
  op.index = view;
  op.role = role;
  op.scalar = scale;
  op.flag = at_end;
}

void ProgramWriter::report(StepFact fact, Slice scalar, double factor) {
  Op& op = emit(OpKind::report);
  op.index = static_cast<std::uint32_t>(fact);
  op.source = scalar;
  op.scalar = factor;
}

void ProgramWriter::report(StepFact fact, double value) {
  Op& op = emit(OpKind::report);
  op.index = static_cast<std::uint32_t>(fact);
  op.scalar = value;
}

void ProgramWriter::end_event() { emit_on(Stream::host, OpKind::end_event); }

}  // namespace gradledger
