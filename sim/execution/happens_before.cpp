#include "sim/execution/happens_before.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sim/base/limits.h"
#include "sim/execution/stream_order.h"

namespace gradledger {
namespace {

using Order = StreamOrder<std::array<std::uint32_t, stream_count>>;
using Clock = std::array<std::uint32_t, stream_count>;
static_assert(static_cast<std::size_t>(Stream::host) == Order::host);

class Check {
 public:
  Check(const Program& program, std::uint32_t rank) : program_(program), rank_(rank), order_(stream_count), recorded_(program.stream_events) {
    for (const BufferDeclaration& buffer : program.buffers) touched_.push_back(Order::untouched(buffer.numel));
  }

  // In the order of enqueueing, which every schedule may take.
  std::vector<RaceRecord> run() {
    for (at_ = 0; at_ < program_.ops.size() && races_.size() < limits::races_reported_max; ++at_) {
      const Op& op = program_.ops[at_];
      order_.enqueue(at_, static_cast<std::size_t>(op.stream));
      visit(op);
    }
    return std::move(races_);
  }

 private:
  void visit(const Op& op) {
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
      case OpKind::multiply:
      case OpKind::divide:
      case OpKind::square_root: return write(op.target);
      case OpKind::sgd:
      case OpKind::adam: return update(program_.updates[op.index]);
      case OpKind::collective: {
        const CollectiveCall& call = program_.collectives[op.index];
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

  void update(const UpdateCall& call) {
    read(call.gradient);
    for (const Slice& state : {call.parameter, call.first_moment, call.second_moment}) write(state);
  }

  auto reporter(BufferId buffer) {
    return [this, buffer](const Order::Stretch& stretch, std::uint32_t earlier) { report(buffer, stretch, earlier); };
  }

  void read(Slice slice) {
    if (slice.numel == 0 || slice.buffer == no_index) return;
    order_.read(touched_[slice.buffer], slice.offset, slice.offset + slice.numel, reporter(slice.buffer));
  }

  void write(Slice slice) {
    if (slice.numel == 0 || slice.buffer == no_index) return;
    order_.write(touched_[slice.buffer], slice.offset, slice.offset + slice.numel, reporter(slice.buffer));
  }

  // ---- what is found --------------------------------------------------------------------------------------------------------------

  RacingOperation describe(std::uint32_t number) const {
    const Op& op = program_.ops[number];
    std::string text(name_of(op.kind));
    if (op.kind == OpKind::collective) {
      const CollectiveCall& call = program_.collectives[op.index];
      text = std::string(name_of(call.kind)) + " (" + std::string(name_of(call.purpose)) + ")";
    }
    return {std::move(text), std::string(name_of(op.stream)), op.event, number};
  }

  void report(BufferId buffer, const Order::Stretch& stretch, std::uint32_t earlier) {
    RaceRecord race{rank_, program_.ops[at_].event, program_.buffers[buffer].name, stretch.begin, stretch.end, describe(earlier - 1), describe(at_)};
    const auto alike = [&](const RaceRecord& known) {
      return known.buffer == race.buffer && known.first.operation == race.first.operation && known.first.stream == race.first.stream &&
             known.second.operation == race.second.operation && known.second.stream == race.second.stream;
    };
    if (std::none_of(races_.begin(), races_.end(), alike)) races_.push_back(std::move(race));
  }

  const Program& program_;
  std::uint32_t rank_;
  std::uint32_t at_ = 0;
  Order order_;
  std::vector<Clock> recorded_;          // by stream event
  std::vector<Order::History> touched_;  // by buffer
  std::vector<RaceRecord> races_;
};

}  // namespace

std::vector<RaceRecord> stream_races(const Program& program, std::uint32_t rank) { return Check(program, rank).run(); }

}  // namespace gradledger
