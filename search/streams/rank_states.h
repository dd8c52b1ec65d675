// The states that the streams of one rank can reach: how far they are, what the rank's memory holds, what was seen so far. A state is a
// number; each step from each state is computed once, whatever the other ranks do meanwhile.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "search/streams/interner.h"
#include "search/streams/stream_control.h"
#include "sim/execution/operations.h"
#include "sim/execution/rank.h"

namespace gradledger::search {

using StateId = std::uint32_t;
using ContentId = Interner::Id;

inline constexpr std::uint32_t nothing = 0xFFFFFFFFu;

class RankStates {
 public:
  // The scratch rank holds the program, complete; it, the operations and the contents, which all ranks share, outlive this.
  explicit RankStates(Rank& scratch, std::uint32_t rank, Operations& operations, Interner& contents);

  // Before the first operation: all memory poison. Number 0.
  static constexpr StateId first = 0;

  const StreamControl& control() const { return control_; }
  const Progress& progress(StateId state) const { return control_.progress(states_[state].control); }
  std::uint32_t progress_number(StateId state) const { return states_[state].control; }
  const StreamControl::Choices& choices(StateId state) const { return control_.choices(states_[state].control); }

  // The state after the stream's next step. Precondition: it is enabled.
  StateId step(StateId state, Stream stream);

  // After all steps, one after the other, that no other stream of the rank can meet in memory. `taken`: is given them.
  struct Settled {
    StateId state = nothing;
    std::uint32_t steps = 0;
  };
  Settled settle(StateId state, std::vector<Stream>* taken = nullptr);

  // What the stream's collective read. Precondition: it has contributed.
  ContentId contribution(StateId state, Stream stream) const;
  // Peers have all contributed: the collective may write this. nothing: this rank's output is not written.
  StateId deliverable(StateId state, Stream stream, ContentId result);

  // Of what was seen (gradients that an update took, values that the host read or reported) and the final contents of what updates
  // write; and of all that is in memory.
  struct Hashes {
    std::uint64_t values = 0, memory = 0;
  };
  Hashes hashes(StateId state) const;
  std::span<const std::byte> contents(StateId state, BufferId buffer) const { return contents_.of(words(state)[at_buffers + buffer]); }

  std::size_t size() const { return states_.size(); }
  std::uint64_t bytes() const { return numbers_.bytes() + states_.capacity() * sizeof(State); }

 private:
  // A state as words: the control's number, what lies at a collective on each stream, the sums of what was seen, the contents of each buffer.
  static constexpr std::size_t at_stream = 1;
  static constexpr std::size_t at_seen = at_stream + stream_count;
  static constexpr std::size_t at_buffers = at_seen + 4;

  struct State {
    std::uint32_t control = 0;
    std::array<StateId, stream_count> next{nothing, nothing, nothing, nothing, nothing, nothing, nothing};
    Settled settled;
  };

  std::span<const std::uint32_t> words(StateId state) const;
  // A state is opened, changed, and closed: what lies between has no number.
  void open(StateId state);
  void take(Stream stream);
  StateId close();
  void contribute(const CollectiveCall& call, Stream stream);
  void deliver(const CollectiveCall& call, Stream stream);
  void run(const Op& op, std::uint32_t at);
  void see(std::uint64_t key, std::span<const std::byte> bytes);
  void see_slice(std::uint32_t at, Slice slice);
  std::span<const std::byte> slice_of(Slice slice) const;  // of the open state
  void load(BufferId buffer);                              // contents to scratch memory
  void store(BufferId buffer);                             // and back

  Rank& scratch_;
  std::uint32_t rank_;
  Operations& operations_;
  Interner& contents_;
  StreamControl control_;
  std::vector<std::uint8_t> updated_;  // by buffer: an update writes it
  std::vector<ContentId> poison_;      // by buffer
  Interner numbers_;
  std::vector<State> states_;
  Progress progress_;                 // of the open state
  std::vector<std::uint32_t> words_;  // likewise, but for the number of its progress
  std::vector<std::byte> bytes_;
};

}  // namespace gradledger::search
