#include "sim/execution/happens_before.h"

#include <algorithm>
#include <utility>

#include "sim/base/limits.h"

namespace gradledger {
namespace {

using Clock = std::array<std::uint32_t, stream_count>;
using Order = StreamOrder<Clock>;

// In the order of enqueueing, which every schedule may take.
template <class Read, class Write>
void enqueue(const Op& op, std::uint32_t number, const Program& program, Order& order, std::vector<Clock>& recorded, Read&& read, Write&& write) {
  order.enqueue(number, static_cast<std::size_t>(op.stream));
  switch (op.kind) {
    case OpKind::record: recorded[op.index] = order.reached(); return;
    case OpKind::wait: return order.wait(recorded[op.index]);
    case OpKind::synchronize:
      if (op.flag == 0) order.synchronize();  // else of a snapshot, which the framework does not wait for
      return;
    default: return each_access(op, program, read, write);
  }
}

bool touches(const Slice& slice) { return slice.numel > 0 && slice.buffer != no_index; }

// As if each access were one to all of its buffer: where nothing races then, no parts of it do.
bool some_buffer_may_race(const Program& program) {
  Order order(stream_count);
  std::vector<Clock> recorded(program.stream_events);
  std::vector<Order::Stretch> touched(program.buffers.size());
  bool races = false;
  const auto report = [&](const Order::Stretch&, std::uint32_t) { races = true; };
  const auto read = [&](const Slice& slice) {
    if (touches(slice)) order.read(touched[slice.buffer], report);
  };
  const auto write = [&](const Slice& slice) {
    if (touches(slice)) order.write(touched[slice.buffer], report);
  };
  for (std::uint32_t at = 0; at < program.ops.size() && !races; ++at) enqueue(program.ops[at], at, program, order, recorded, read, write);
  return races;
}

}  // namespace

void StreamCheck::follow(const Program& program, std::vector<Met>* met) {
  program_ = &program;
  met_ = met;
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
    enqueue(
        op, at_, program, order_, recorded_, [this](const Slice& slice) { read(slice); }, [this](const Slice& slice) { write(slice); });
  }
}

void StreamCheck::read(const Slice& slice) {
  if (!touches(slice)) return;
  const StretchRange range = order_.read(touched_[slice.buffer], slice.offset, slice.offset + slice.numel,
                                         [&](const Order::Stretch& stretch, std::uint32_t earlier) { report(slice.buffer, stretch, earlier); });
  if (met_) met_->push_back({range, touched_[slice.buffer].size()});
}

void StreamCheck::write(const Slice& slice) {
  if (!touches(slice)) return;
  const StretchRange range = order_.write(touched_[slice.buffer], slice.offset, slice.offset + slice.numel,
                                          [&](const Order::Stretch& stretch, std::uint32_t earlier) { report(slice.buffer, stretch, earlier); });
  if (met_) met_->push_back({range, touched_[slice.buffer].size()});
}

// ---- of another rank ----------------------------------------------------------------------------------------------------------------

StreamCheck::Mark StreamCheck::mark() const { return {at_, order_, touched_, recorded_.size(), events_.size()}; }

// What is only appended to is as it was then, up to the mark.
StreamCheck::StreamCheck(std::uint32_t rank, const StreamCheck& alike, const Mark& up_to, const std::vector<Extents>& extents)
    : rank_(rank), at_(up_to.operation), order_(up_to.order), touched_(up_to.touched) {
  const auto first = [](const auto& all, std::size_t count) { return std::vector(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count)); };
  recorded_ = first(alike.recorded_, up_to.recorded);
  passed_ = first(alike.passed_, up_to.operation);
  events_ = first(alike.events_, up_to.events);
  for (std::size_t buffer = 0; buffer < std::min(touched_.size(), extents.size()); ++buffer)
    for (std::size_t i = 0; i < extents[buffer].size(); ++i) {
      touched_[buffer][i].begin = extents[buffer][i].begin;
      touched_[buffer][i].end = extents[buffer][i].end;
    }
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
  if (!some_buffer_may_race(program)) return {};
  StreamCheck check(rank);
  check.follow(program);
  return check.races();
}

}  // namespace gradledger
