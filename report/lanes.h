// The operations of a run on their lanes, a lane being a stream of a rank. There is no clock: an operation takes one unit, and begins as soon as
// its program's own waits let it. So lanes depend on no schedule, and what stands beside each other may run at the same time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/program/program.h"
#include "sim/trace/observation.h"

namespace gradledger::report {

struct LaneOperation {
  OpKind kind = OpKind::fill;
  Stream stream = Stream::host;
  std::uint32_t event = 0;   // of the script
  std::uint32_t number = 0;  // in the rank's program
  bool at_start = false;     // before the first event
  std::uint64_t begin = 0, end = 0;
  std::optional<std::uint32_t> meeting;  // of a collective
};

// A collective as all of its ranks make it.
struct Meeting {
  std::string what;  // "all_reduce sum of 64 bf16"
  Purpose purpose = Purpose::gradient;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> members;  // rank and index of its operation, in the order of arrival
  bool complete = false;                                         // all ranks of the group came
};

struct Lanes {
  struct Event {
    std::string what;  // "backward of micro-batch 0"
    std::uint32_t step = 0;
  };
  std::vector<Event> events;                      // of the script
  std::vector<std::vector<LaneOperation>> ranks;  // of a stream in their order
  std::vector<Meeting> meetings;
  std::vector<RaceRecord> races;
  std::uint64_t end = 0;
  std::string left_out;  // why there are none; empty: there are
};

}  // namespace gradledger::report
