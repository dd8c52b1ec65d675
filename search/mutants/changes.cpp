// What becomes of the operations that a fault hits.
#include <algorithm>
#include <optional>
#include <utility>

#include "search/mutants/blocks.h"

namespace gradledger::search {
namespace {

// A slice of the same length one element further, or one before where the buffer ends. None where it fills the buffer.
std::optional<Slice> shifted(const Tape& tape, Slice slice) {
  if (slice.numel == 0) return std::nullopt;
  if (slice.offset + slice.numel < tape.buffer(slice).numel) return Slice{slice.buffer, slice.offset + 1, slice.numel};
  if (slice.offset > 0) return Slice{slice.buffer, slice.offset - 1, slice.numel};
  return std::nullopt;
}

bool touches_elements(const Op& op) {
  return op.kind != OpKind::allocate && op.kind != OpKind::release && op.kind != OpKind::record && op.kind != OpKind::wait && op.kind != OpKind::synchronize &&
         op.kind != OpKind::send && op.kind != OpKind::receive;
}

// The nearest operation of the same stream before or after that reads or writes. None: the tape's size.
std::size_t neighbour(const Tape& tape, std::size_t at, bool before) {
  for (std::size_t i = at; before ? i > 0 : i + 1 < tape.size();) {
    i += before ? -1 : 1;
    if (tape[i].stream == tape[at].stream && touches_elements(tape[i])) return i;
  }
  return tape.size();
}

}  // namespace

void dropped(Tape& tape, std::size_t at, const Moment&) { tape.erase(at); }

void repeated(Tape& tape, std::size_t at, const Moment&) {
  Op again = tape[at];
  if (again.kind == OpKind::deposit) again.flag = 1;
  tape.insert(at + 1, again);
}

void zeroed(Tape& tape, std::size_t at, const Moment&) {
  const Op op = tape[at];
  const bool adds = op.kind == OpKind::accumulate || (op.kind == OpKind::deposit && op.flag != 0);
  if (adds) tape.erase(at);
  else tape[at] = Tape::like(op, OpKind::fill, op.target);
}

void overwriting(Tape& tape, std::size_t at, const Moment&) {
  if (tape[at].kind == OpKind::accumulate) tape[at].kind = OpKind::copy;
  if (tape[at].kind == OpKind::deposit) tape[at].flag = 0;
}

void adding(Tape& tape, std::size_t at, const Moment&) {
  if (tape[at].kind == OpKind::copy) tape[at].kind = OpKind::accumulate;
  if (tape[at].kind == OpKind::deposit) tape[at].flag = 1;
}

void shortened(Tape& tape, std::size_t at, const Moment&) {
  for (Slice* slice : {&tape[at].target, &tape[at].source})
    if (slice->numel > 0) --slice->numel;
}

void source_slid(Tape& tape, std::size_t at, const Moment&) {
  Op& op = tape[at];
  if (op.source.numel < 2) return;
  op.source = op.source.part(1, op.source.numel - 1);
  op.target = op.target.part(0, op.source.numel);
}

void target_slid(Tape& tape, std::size_t at, const Moment&) {
  Op& op = tape[at];
  if (op.target.numel < 2) return;
  op.target = op.target.part(1, op.target.numel - 1);
  op.source = op.source.part(0, op.target.numel);
}

void target_shifted(Tape& tape, std::size_t at, const Moment&) {
  if (const auto there = shifted(tape, tape[at].target)) tape[at].target = *there;
}

void before_what_comes_before(Tape& tape, std::size_t at, const Moment&) {
  if (const std::size_t before = neighbour(tape, at, true); before < tape.size()) tape.move(at, before);
}

void after_what_comes_next(Tape& tape, std::size_t at, const Moment&) {
  if (const std::size_t next = neighbour(tape, at, false); next < tape.size()) tape.move(at, next);
}

void to_the_front(Tape& tape, std::size_t at, const Moment&) { tape.move(at, 0); }

void to_the_end(Tape& tape, std::size_t at, const Moment&) { tape.move(at, tape.size() - 1); }

void before_its_last_use(Tape& tape, std::size_t at, const Moment&) {
  const BufferId buffer = tape[at].target.buffer;
  for (std::size_t i = at; i-- > 0;)
    if (tape.touches(tape[i], buffer)) return tape.move(at, i);
}

void through_bf16(Tape& tape, std::size_t at, const Moment&) {
  const Op op = tape[at];
  const Slice narrow = tape.declare("narrow", Dtype::bfloat16, op.target.numel);
  std::size_t next = at;
  for (const Op& added : {Tape::like(op, OpKind::allocate, narrow), Tape::like(op, OpKind::copy, narrow, op.target), Tape::like(op, OpKind::copy, op.target, narrow),
                          Tape::like(op, OpKind::release, narrow)})
    tape.insert(++next, added);
}

Change scaled(double factor) {
  return [=](Tape& tape, std::size_t at, const Moment&) { tape[at].scalar *= factor; };
}

Change scaled_by(std::function<double(const Moment&)> factor) {
  return [=](Tape& tape, std::size_t at, const Moment& m) { tape[at].scalar *= factor(m); };
}

Change on_the(Stream stream) {
  return [=](Tape& tape, std::size_t at, const Moment&) { tape[at].stream = stream; };
}

Change called(std::function<void(CollectiveCall&, const Moment&)> change) {
  return [=](Tape& tape, std::size_t at, const Moment& m) { change(tape.call(tape[at]), m); };
}

Change updated(std::function<void(UpdateCall&, const Moment&)> change) {
  return [=](Tape& tape, std::size_t at, const Moment& m) { change(tape.update(tape[at]), m); };
}

}  // namespace gradledger::search
