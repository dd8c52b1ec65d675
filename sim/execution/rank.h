// One virtual rank as a value: its program, how far each stream has come, its memory, and the engine that writes the program.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/execution/memory.h"
#include "sim/program/program.h"

namespace gradledger {

// How many a rank ran, by line: in each it sends to one rank, and receives from one.
struct SendCounts {
  std::array<std::uint64_t, send_lines> sent{}, received{};
  std::array<std::uint32_t, send_lines> sent_to{};  // by the last of them
};

struct Rank {
  Program program;
  std::unique_ptr<Engine> engine;
  RankMemory memory;

  StreamHeads head = no_heads;                       // next operation of each stream
  std::array<bool, stream_count> waits_for_peers{};  // its collective was announced
  std::vector<std::uint8_t> recorded;                // stream events
  SendCounts sends;
  std::uint32_t next_event = 0;           // of the script, to be emitted
  std::uint32_t event = 0;                // of the last operation that ran
  std::uint32_t operations_at_start = 0;  // of its program, before the first event
  bool emitted_all = false;
  bool finished = false;
  std::vector<EngineErrorRecord> errors;  // by event
  std::size_t errors_told = 0;            // of them, to the sink

  // No program yet.
  void start_over() {
    program.clear();
    memory.start_over();
    next_event = 0;
    emitted_all = false;
    errors.clear();
    errors_told = 0;
  }

  // Back to the start of the recorded program.
  void rewind() {
    memory.prepare(program.buffers);
    memory.reset();
    head = program.first;
    waits_for_peers.fill(false);
    recorded.assign(program.stream_events, 0);
    sends = {};
    event = 0;
    finished = false;
    errors_told = 0;
  }

  // As the other stands, engine included. What this one holds keeps its memory.
  void become(const Rank& other) {
    program = other.program;
    engine = other.engine->clone();
    memory = other.memory;
    head = other.head;
    waits_for_peers = other.waits_for_peers;
    recorded = other.recorded;
    sends = other.sends;
    next_event = other.next_event;
    event = other.event;
    operations_at_start = other.operations_at_start;
    emitted_all = other.emitted_all;
    finished = other.finished;
    errors = other.errors;
    errors_told = other.errors_told;
  }

  // That of a stream for which it waited is over.
  void pass_collective(Stream stream) {
    const auto s = static_cast<std::size_t>(stream);
    waits_for_peers[s] = false;
    head[s] = program.ops[head[s]].next;
  }

  // From the end of its script, which has become longer.
  void go_on() { emitted_all = finished = false; }

  // Where the other stands, with this program. Its engine, what that raised and its place in the script are its own.
  void stand_as(const Rank& other, Program its_program) {
    program = std::move(its_program);
    memory = other.memory;
    head = other.head;
    waits_for_peers = other.waits_for_peers;
    recorded = other.recorded;
    sends = other.sends;
    event = other.event;
    operations_at_start = other.operations_at_start;
    finished = other.finished;
  }

  // Every stream has all behind it that was appended.
  bool ran_dry() const {
    return std::all_of(head.begin(), head.end(), [](std::uint32_t next) { return next == no_index; });
  }
  // The first operation that some stream does not have behind it, or that somebody else asks for.
  std::uint32_t ran_before(std::uint32_t needed_from) const {
    return std::min({*std::min_element(head.begin(), head.end()), static_cast<std::uint32_t>(program.ops.size()), needed_from});
  }
  void forget_what_ran(std::uint32_t needed_from) { program.forget_before(ran_before(needed_from)); }

  // Heads that had run dry move on to what was appended since.
  void see_appended(const StreamHeads& last_before) {
    for (std::size_t s = 0; s < stream_count; ++s)
      if (head[s] == no_index) head[s] = last_before[s] == no_index ? program.first[s] : program.ops[last_before[s]].next;
    recorded.resize(program.stream_events, 0);
    memory.prepare(program.buffers);
  }
};

}  // namespace gradledger
