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
  explicit StreamCheck(std::uint32_t rank) : rank_(rank), order_(stream_count) {}

  void follow(const Program& program);

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

  void visit(const Op& op);
  void update(const UpdateCall& call);
  void read(Slice slice);
  void write(Slice slice);
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
};

// Of a whole program.
std::vector<RaceRecord> stream_races(const Program& program, std::uint32_t rank);

}  // namespace gradledger
