// Happens-before over the streams of a rank: two accesses to the same elements, one of them a write, must be ordered by what the program
// itself waits for. Decided from the program alone, so that it holds for every schedule.
//
// Ordered are: operations of one stream; host work and what the host enqueues after it; a record and what follows a wait for it; what was
// enqueued before a synchronize and the host after it. Another rank's progress orders nothing. A snapshot's own wait and reads are not
// the framework's and count for nothing.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/execution/stream_order.h"
#include "sim/program/program.h"
#include "sim/trace/observation.h"

namespace gradledger {

// Of a program that is still being written: follow() takes in what was appended since, so that it may be let go.
class StreamCheck {
 public:
  // Which stretches of its buffer an access meets, and how many there are then. Programs whose accesses meet the same ones, operation by operation, are
  // ordered alike, wherever in the buffers that is.
  struct Met {
    StretchRange range;
    std::size_t stretches = 0;

    bool operator==(const Met&) const = default;
  };
  struct Extent {
    std::uint64_t begin = 0, end = 0;

    bool operator==(const Extent&) const = default;
  };
  using Extents = std::vector<Extent>;  // of a buffer, in order, without gaps

  explicit StreamCheck(std::uint32_t rank) : rank_(rank), order_(stream_count) {}

  // met: of each access, in order, if that is asked for.
  void follow(const Program& program, std::vector<Met>* met = nullptr);

  // What it has come to, so that another rank may go on from there.
  struct Mark;
  Mark mark() const;
  // Of a rank whose accesses met the same stretches up to the mark. extents: of those of its buffers that are cut elsewhere. Precondition: no race by then.
  StreamCheck(std::uint32_t rank, const StreamCheck& alike, const Mark& up_to, const std::vector<Extents>& extents);

  // Taken by what grows with the program.
  std::uint64_t bytes() const { return passed_.capacity() * sizeof(Passed); }

  // One record for each pair of operation kinds and streams that meets in a buffer, the first time it does, in the order of the program;
  // at most limits::races_reported_max.
  const std::vector<RaceRecord>& races() const { return races_; }

 private:
  using Clock = std::array<std::uint32_t, stream_count>;
  using Order = StreamOrder<Clock>;
  // What a report says of an earlier operation.
  struct Passed {
    OpKind kind;
    Stream stream;
    CollectiveKind collective;
    Purpose purpose;
  };

  void read(const Slice& slice);
  void write(const Slice& slice);
  RacingOperation describe(std::uint32_t number) const;
  void report(BufferId buffer, const Order::Stretch& stretch, std::uint32_t earlier);

  std::uint32_t rank_;
  const Program* program_ = nullptr;  // while it is followed
  std::uint32_t at_ = 0;
  Order order_;
  std::vector<Clock> recorded_;                                  // by stream event
  std::vector<Order::History> touched_;                          // by buffer
  std::vector<Passed> passed_;                                   // by operation
  std::vector<std::pair<std::uint32_t, std::uint32_t>> events_;  // script events, each with its first operation
  std::vector<RaceRecord> races_;
  std::vector<Met>* met_ = nullptr;  // while it is followed
};

struct StreamCheck::Mark {
  std::uint32_t operation = 0;  // the first that it has not followed
  Order order{stream_count};
  std::vector<Order::History> touched;
  std::size_t recorded = 0, events = 0;

  // None of a buffer that was not declared yet.
  Extents extents(std::size_t buffer) const {
    Extents out;
    for (std::size_t i = 0; buffer < touched.size() && i < touched[buffer].size(); ++i) out.push_back({touched[buffer][i].begin, touched[buffer][i].end});
    return out;
  }
};

// What an operation reads and writes, in the order in which it does. Memory that is allocated is as its release left it; snapshots are not the framework's.
template <class Read, class Write>
void each_access(const Op& op, const Program& program, Read&& read, Write&& write) {
  switch (op.kind) {
    case OpKind::release:
    case OpKind::deposit:
    case OpKind::fill:
    case OpKind::multiply:
    case OpKind::divide:
    case OpKind::square_root: return write(op.target);
    case OpKind::copy:
    case OpKind::accumulate:
    case OpKind::squared_norm:
    case OpKind::check_finite: read(op.source); return write(op.target);
    case OpKind::interleave:
      for (const Interleaving::Part& part : program.interleavings[op.index].parts) read(part.slice);
      return write(op.target);
    case OpKind::part_rows:
      read(op.source);
      for (const Interleaving::Part& part : program.interleavings[op.index].parts) write(part.slice);
      return;
    case OpKind::sgd:
    case OpKind::adam: {
      const UpdateCall& call = program.updates[op.index];
      read(call.gradient);
      for (const Slice& state : {call.parameter, call.first_moment, call.second_moment}) write(state);
      return;
    }
    case OpKind::collective: {
      const CollectiveCall& call = program.collectives[op.index];
      read(call.input);
      return write(call.output);
    }
    case OpKind::read:
    case OpKind::report: return read(op.source);
    case OpKind::send:
    case OpKind::receive:
    case OpKind::record:
    case OpKind::wait:
    case OpKind::synchronize:
    case OpKind::allocate:
    case OpKind::observe:
    case OpKind::end_event: return;
  }
}

// Of a whole program.
std::vector<RaceRecord> stream_races(const Program& program, std::uint32_t rank);

}  // namespace gradledger
