#include "sim/execution/happens_before.h"

#include <algorithm>
#include <utility>

#include "sim/base/limits.h"

namespace gradledger {

// In the order of enqueueing, which every schedule may take.
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
    default:
      return each_access(
          op, *program_, [this](Slice slice) { read(slice); }, [this](Slice slice) { write(slice); });
  }
}

void StreamCheck::read(Slice slice) {
  if (slice.numel == 0 || slice.buffer == no_index) return;
  const StretchRange range = order_.read(touched_[slice.buffer], slice.offset, slice.offset + slice.numel,
                                         [&](const Order::Stretch& stretch, std::uint32_t earlier) { report(slice.buffer, stretch, earlier); });
  if (met_) met_->push_back({range, touched_[slice.buffer].size()});
}

void StreamCheck::write(Slice slice) {
  if (slice.numel == 0 || slice.buffer == no_index) return;
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
  StreamCheck check(rank);
  check.follow(program);
  return check.races();
}

}  // namespace gradledger
