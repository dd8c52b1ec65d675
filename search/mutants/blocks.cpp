#include "search/mutants/blocks.h"

#include <algorithm>
#include <utility>

namespace gradledger::search {
namespace {

const Backward* backward_of(const Moment& m) { return m.event && m.event->is<events::Backward>() ? &m.timeline.backwards[m.event->as<events::Backward>()->ordinal] : nullptr; }

bool is_one_of(OpKind kind, const std::vector<OpKind>& kinds) { return std::find(kinds.begin(), kinds.end(), kind) != kinds.end(); }

}  // namespace

TapeEdit edit(When when, Take take, Which which, Change change) {
  return [=](Tape& tape, const Moment& m) {
    if (!when(m)) return;
    std::vector<std::uint32_t> hits;
    for (std::size_t at = 0; at < tape.size(); ++at)
      if (which(tape, tape[at])) hits.push_back(tape.number(at));
    if (hits.empty()) return;
    if (take == Take::first) hits = {hits.front()};
    if (take == Take::last) hits = {hits.back()};
    // From the end, so that what is moved to the front keeps its order.
    for (auto hit = hits.rbegin(); hit != hits.rend(); ++hit)
      if (const std::size_t at = tape.place_of(*hit); at < tape.size()) change(tape, at, m);
  };
}

TapeEdit both_edits(TapeEdit one, TapeEdit then) {
  return [=](Tape& tape, const Moment& m) {
    one(tape, m);
    then(tape, m);
  };
}

TapeEdit swap_first(When when, Which which, std::function<bool(const Op&, const Op&)> fits, std::function<void(Op&, Op&)> swap) {
  return [=](Tape& tape, const Moment& m) {
    if (!when(m)) return;
    for (std::size_t one = 0; one < tape.size(); ++one) {
      if (!which(tape, tape[one])) continue;
      for (std::size_t other = one + 1; other < tape.size(); ++other)
        if (which(tape, tape[other]) && fits(tape[one], tape[other])) return swap(tape[one], tape[other]);
    }
  };
}

// ---- when ---------------------------------------------------------------------------------------------------------------------------

bool always(const Moment&) { return true; }
bool at_start(const Moment& m) { return m.event == nullptr; }
bool at_backward(const Moment& m) { return backward_of(m) != nullptr; }
bool at_boundary(const Moment& m) {
  if (!backward_of(m) || m.timeline.contract.boundary.counted) return backward_of(m) && backward_of(m)->boundary;
  const std::size_t next = m.event->as<events::Backward>()->ordinal + 1;
  return next == m.timeline.backwards.size() || m.timeline.backwards[next].step != m.event->step;
}
bool at_first_micro_batch(const Moment& m) { return backward_of(m) && backward_of(m)->micro_batch[m.rank] == 0; }
bool at_later_micro_batch(const Moment& m) { return backward_of(m) && backward_of(m)->micro_batch[m.rank] > 0; }
bool at_inner_micro_batch(const Moment& m) { return backward_of(m) && !at_boundary(m); }
bool at_step(const Moment& m) { return m.event && m.event->updates(); }
bool after_first_window(const Moment& m) { return m.event && m.event->step > 0; }

When on_rank(std::uint32_t rank, When when) {
  return [=](const Moment& m) { return m.rank == rank && when(m); };
}

When both(When one, When other) {
  return [=](const Moment& m) { return one(m) && other(m); };
}

// ---- which --------------------------------------------------------------------------------------------------------------------------

Which of_kind(std::initializer_list<OpKind> kinds) {
  return [any = std::vector<OpKind>(kinds)](const Tape&, const Op& op) { return is_one_of(op.kind, any); };
}

bool deposits(const Tape&, const Op& op) { return op.kind == OpKind::deposit && op.index != no_index; }
bool updates(const Tape&, const Op& op) { return op.kind == OpKind::sgd || op.kind == OpKind::adam; }
bool updates_with_moments(const Tape&, const Op& op) { return op.kind == OpKind::adam; }

Which collectives(Purpose purpose) {
  return [=](const Tape& tape, const Op& op) { return op.kind == OpKind::collective && tape.call(op).purpose == purpose; };
}

bool reductions(const Tape& tape, const Op& op) { return op.kind == OpKind::collective && tape.call(op).purpose == Purpose::gradient; }

bool divisions(const Tape& tape, const Op& op) {
  if (op.kind != OpKind::divide && op.kind != OpKind::multiply) return false;
  const std::string_view name = tape.buffer(op.target).name;
  for (const std::string_view bucket : {"ipg_b", "bucket_in", "flattened_", "gradients_in_comm", "interleaved", "grads_in_part"})
    if (name.starts_with(bucket)) return true;
  return name.ends_with(".grad") && op.kind == OpKind::divide;  // a parameter that is larger than the bucket
}

Which writes(BufferPurpose purpose, std::initializer_list<OpKind> kinds) {
  return [purpose, any = std::vector<OpKind>(kinds)](const Tape& tape, const Op& op) { return is_one_of(op.kind, any) && tape.purpose(op.target) == purpose; };
}

Which reads(BufferPurpose purpose, std::initializer_list<OpKind> kinds) {
  return [purpose, any = std::vector<OpKind>(kinds)](const Tape& tape, const Op& op) { return is_one_of(op.kind, any) && tape.purpose(op.source) == purpose; };
}

Which from_to(BufferPurpose source, BufferPurpose target, std::initializer_list<OpKind> kinds) { return that(reads(source, kinds), writes(target, kinds)); }

Which from_space(MemorySpace source, MemorySpace target, std::initializer_list<OpKind> kinds) {
  return [source, target, any = std::vector<OpKind>(kinds)](const Tape& tape, const Op& op) {
    return is_one_of(op.kind, any) && tape.buffer(op.source).space == source && tape.buffer(op.target).space == target;
  };
}

Which on_stream(Stream stream, Which which) {
  return [=](const Tape& tape, const Op& op) { return op.stream == stream && which(tape, op); };
}

Which waits_on(Stream stream) { return on_stream(stream, of_kind({OpKind::wait})); }

Which named(std::string_view start, Which which) {
  return [=](const Tape& tape, const Op& op) { return which(tape, op) && tape.buffer(op.target).name.starts_with(start); };
}

Which either(Which one, Which other) {
  return [=](const Tape& tape, const Op& op) { return one(tape, op) || other(tape, op); };
}

Which that(Which one, Which other) {
  return [=](const Tape& tape, const Op& op) { return one(tape, op) && other(tape, op); };
}

}  // namespace gradledger::search
