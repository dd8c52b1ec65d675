// How the streams of one rank can go on, apart from values: which heads may run, and which steps of other streams meet them in memory.
//
// A step is an operation; a collective is two: it reads its input (contribute), and writes its output once every member of the group has
// contributed (deliver). Between them the rank's other streams go on, as they do while a collective is in flight.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "search/streams/interner.h"
#include "sim/program/program.h"

namespace gradledger::search {

enum class Phase : std::uint32_t { none, contributed, deliverable };  // of the collective at a stream's head

// How far the streams of a rank have come. Which stream events are recorded follows from it.
struct Progress {
  StreamHeads head = no_heads;
  std::array<Phase, stream_count> phase{};

  bool operator==(const Progress&) const = default;
  bool finished() const { return head == no_heads; }
};

struct Access {
  Slice slice;
  bool writes = false;
};

// Step 2n is operation n, or its contribution where it is a collective; step 2n+1 is the delivery. An allocation touches nothing: the
// memory is what its release left. A release writes. A snapshot is gradledger's own and touches nothing either.
std::vector<Access> accesses(const Program& program, std::uint32_t step);

class StreamControl {
 public:
  using StreamSet = std::uint8_t;  // a bit for each stream

  struct Choices {
    StreamSet enabled = 0;
    StreamSet contributed = 0;                    // waits for peers
    std::array<StreamSet, stream_count> meets{};  // of an enabled head: the streams that could meet it in memory while it stands still

    // The first stream whose head may run and be met by none; stream_count where there is none.
    std::size_t first_free() const {
      std::size_t s = 0;
      while (s < stream_count && ((enabled >> s & 1u) == 0 || meets[s] != 0)) ++s;
      return s;
    }
  };

  // The program outlives this.
  explicit StreamControl(const Program& program);

  const Program& program() const { return program_; }
  bool recorded(const Progress& progress, std::uint32_t stream_event) const;
  bool enabled(const Progress& progress, Stream stream) const;

  // What is known of a progress, computed once for each.
  std::uint32_t number_of(const Progress& progress);
  const Progress& progress(std::uint32_t number) const { return progresses_[number]; }
  const Choices& choices(std::uint32_t number) const { return choices_[number]; }

  // A stream of the rank that has to move before the head of this one may run; the stream itself where there is none, as where it has ended.
  // Precondition: the head is not enabled and not at a collective that waits for peers.
  Stream waits_for(const Progress& progress, Stream stream) const;

 private:
  Choices choices_of(const Progress& progress);
  // How far the other streams come while one stands still, if no peer keeps them waiting.
  StreamHeads reach_without(const Progress& progress, Stream still) const;
  const std::vector<std::uint32_t>& conflicts(std::uint32_t step);

  const Program& program_;
  std::vector<std::uint32_t> record_of_;  // by stream event: the operation
  struct Touch {
    std::uint32_t step = 0;
    Access access;
  };
  std::vector<std::vector<Touch>> touches_;            // by buffer
  std::vector<std::vector<std::uint32_t>> conflicts_;  // by step: those of other streams, sorted; computed when asked for
  std::vector<std::uint8_t> conflicts_known_;
  Interner numbers_;
  std::vector<Progress> progresses_;
  std::vector<Choices> choices_;
};

// Of a progress: the step that a stream takes next. Precondition: it has a head.
inline std::uint32_t next_step(const Progress& progress, Stream stream) {
  const auto s = static_cast<std::size_t>(stream);
  return 2 * progress.head[s] + (progress.phase[s] == Phase::none ? 0 : 1);
}

}  // namespace gradledger::search
