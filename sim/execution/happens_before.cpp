#include "sim/execution/happens_before.h"

#include <algorithm>
#include <utility>

#include "sim/base/limits.h"

namespace gradledger {

// In the order of enqueueing, which every schedule may take.
void StreamCheck::follow(const Program& program) {
  program_ = &program;
  while (touched_.size() < program.buffers.size()) touched_.push_back(Order::untouched(program.buffers[touched_.size()].numel));
  recorded_.resize(program.stream_events);
  for (; at_ < program.ops.size() && races_.size() < limits::races_reported_max; ++at_) {
    const Op& op = program.ops[at_];
    if (events_.empty() || events_.back().first != op.event) events_.emplace_back(op.event, at_);
    Passed& passed = passed_.emplace_back(Passed{op.kind, op.stream, {}, {}});
    if (op.kind == OpKind::collective) {
      passed.collective = program.collectives[op.index].kind;
      passed.purpose = program.collectives[op.index].purpose;
    }
    order_.enqueue(at_, static_cast<std::size_t>(op.stream));
    visit(op);
  }
}

void StreamCheck::visit(const Op& op) {
  switch (op.kind) {
    case OpKind::record: recorded_[op.index] = order_.reached(); return;
    case OpKind::wait: return order_.wait(recorded_[op.index]);
    case OpKind::synchronize:
      if (op.flag == 0) order_.synchronize();  // else of a snapshot, which the framework does not wait for
      return;
    case OpKind::release:
    case OpKind::deposit:
    case OpKind::fill: return write(op.target);
    case OpKind::copy:
    case OpKind::accumulate:
    case OpKind::squared_norm:
    case OpKind::check_finite: read(op.source); return write(op.target);
    case OpKind::interleave:
      for (const Interleaving::Part& part : program_->interleavings[op.index].parts) read(part.slice);
      return write(op.target);
    case OpKind::part_rows:
      read(op.source);
      for (const Interleaving::Part& part : program_->interleavings[op.index].parts) write(part.slice);
      return;
    case OpKind::multiply:
    case OpKind::divide:
    case OpKind::square_root: return write(op.target);
    case OpKind::sgd:
    case OpKind::adam: return update(program_->updates[op.index]);
    case OpKind::collective: {
      const CollectiveCall& call = program_->collectives[op.index];
      read(call.input);
      return write(call.output);
    }
    case OpKind::read:
    case OpKind::report: return read(op.source);
    case OpKind::allocate:  // gets memory as its release left it
    case OpKind::observe:
    case OpKind::end_event: return;
  }
}

void StreamCheck::update(const UpdateCall& call) {
  read(call.gradient);
  for (const Slice& state : {call.parameter, call.first_moment, call.second_moment}) write(state);
}

void StreamCheck::read(Slice slice) {
  if (slice.numel == 0 || slice.buffer == no_index) return;
  order_.read(touched_[slice.buffer], slice.offset, slice.offset + slice.numel,
              [&](const Order::Stretch& stretch, std::uint32_t earlier) { report(slice.buffer, stretch, earlier); });
}

void StreamCheck::write(Slice slice) {
  if (slice.numel == 0 || slice.buffer == no_index) return;
  order_.write(touched_[slice.buffer], slice.offset, slice.offset + slice.numel,
               [&](const Order::Stretch& stretch, std::uint32_t earlier) { report(slice.buffer, stretch, earlier); });
}

// ---- what is found --------------------------------------------------------------------------------------------------------------

RacingOperation StreamCheck::describe(std::uint32_t number) const {
  const Passed& op = passed_[number];
  std::string text(name_of(op.kind));
  if (op.kind == OpKind::collective) text = std::string(name_of(op.collective)) + " (" + std::string(name_of(op.purpose)) + ")";
  const auto behind = std::upper_bound(events_.begin(), events_.end(), number, [](std::uint32_t n, const auto& e) { return n < e.second; });
  return {std::move(text), std::string(name_of(op.stream)), std::prev(behind)->first, number};
}

void StreamCheck::report(BufferId buffer, const Order::Stretch& stretch, std::uint32_t earlier) {
  RaceRecord race{rank_, program_->ops[at_].event, program_->buffers[buffer].name, stretch.begin, stretch.end, describe(earlier - 1), describe(at_)};
  const auto alike = [&](const RaceRecord& known) {
    return known.buffer == race.buffer && known.first.operation == race.first.operation && known.first.stream == race.first.stream &&
           known.second.operation == race.second.operation && known.second.stream == race.second.stream;
  };
  if (std::none_of(races_.begin(), races_.end(), alike)) races_.push_back(std::move(race));
}

std::vector<RaceRecord> stream_races(const Program& program, std::uint32_t rank) {
  StreamCheck check(rank);
  check.follow(program);
  return check.races();
}

}  // namespace gradledger
