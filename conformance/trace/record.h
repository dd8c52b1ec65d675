// Records of a trace as they are kept while it is judged, and as its lines have them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "conformance/fields.h"
#include "sim/scenario/timeline.h"
#include "sim/scenario/workload.h"
#include "sim/trace/producer.h"

namespace gradledger::conform {

// An observation with what it shows.
struct KeptObservation {
  struct Piece {
    std::int32_t parameter = -1;
    std::uint64_t offset = 0, numel = 0;
    Dtype dtype = Dtype::float32;
  };
  std::uint32_t rank = 0, event = 0;
  bool at_end = true;
  Role role = Role::scratch;
  MemorySpace space = MemorySpace::device;
  double scale = 1.0;
  std::string buffer;
  std::vector<Piece> pieces;
  std::vector<std::byte> data;
  std::vector<double> errors;  // by element; empty: none
};

struct KeptMemory {
  MemoryRecord record;  // without its buffer
  std::string buffer;
};

struct EventDone {
  std::uint32_t rank = 0, event = 0;
};

using Record =
    std::variant<KeptObservation, CollectiveRecord, KeptMemory, StepRecord, EventDone, UnwrittenRecord, EngineErrorRecord, DeadlockRecord, MismatchRecord, RaceRecord, RunSummary>;

// A line of a pass. Ranks, events and parameters are the scenario's. Throws Unreadable.
Record record_of(const Field& line, const Workload& workload, const Timeline& timeline);

// Bytes of memory that it takes.
std::uint64_t bytes_of(const Record& record);

void play(const Record& record, TraceSink& sink);

}  // namespace gradledger::conform
