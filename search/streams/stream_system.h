// All ranks of one scenario as a system of streams: a state is one number a rank, a step moves one stream.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "ref/probes.h"
#include "search/streams/meetings.h"
#include "search/streams/rank_states.h"
#include "search/streams/stream_orders.h"

namespace gradledger::search {

using SystemState = std::vector<StateId>;  // by rank

class StreamSystem {
 public:
  // Records the programs.
  StreamSystem(const Scenario& scenario, const Timeline& timeline, const StreamOrderOptions& options);

  bool mismatch() const { return mismatch_; }
  bool receives() const;  // any rank, from another stage of a pipeline
  std::vector<RaceRecord> races() const;

  SystemState start() const { return SystemState(ranks_.size(), RankStates::first); }
  bool enabled(const SystemState& state, StreamDecision decision) const { return (choices(state, decision.rank).enabled >> static_cast<unsigned>(decision.stream) & 1u) != 0; }
  // Precondition: enabled.
  void step(SystemState& state, StreamDecision decision);
  bool finished(const SystemState& state) const;
  // How far all streams are, by rank; values apart.
  std::vector<std::uint32_t> progress(std::span<const StateId> state) const;
  StreamOutcome outcome(const SystemState& state) const;
  std::vector<std::vector<std::vector<std::byte>>> memory(const SystemState& state) const;  // of each buffer, by rank

  // All steps that may be taken.
  std::vector<StreamDecision> all_choices(const SystemState& state) const;
  // A persistent set of them: whatever is done without these meets none of them in memory, so that a search which takes only these reaches
  // every state that all orders end in.
  std::vector<StreamDecision> persistent_choices(const SystemState& state) const;
  // Takes steps that no other stream can meet, each a persistent set of its own, until there are none; says which to `taken`, if given.
  // Returns their number.
  std::uint64_t settle(SystemState& state, std::vector<StreamDecision>* taken);

  std::uint64_t rank_states() const;
  std::uint64_t bytes() const;

 private:
  const StreamControl::Choices& choices(const SystemState& state, std::size_t rank) const { return states_[rank].choices(state[rank]); }
  void meet(SystemState& state, StreamDecision last);
  // The streams, rank by rank, that the one at `from` draws in; those of them that may run are a persistent set.
  std::vector<std::size_t> closure(const SystemState& state, std::size_t from) const;
  void draw_in(const SystemState& state, std::size_t process, std::vector<std::uint8_t>& in, std::vector<std::size_t>& all) const;

  std::unique_ptr<GradientSource> gradients_;
  ref::PlantedSource planted_;
  TraceSink nobody_;
  Operations operations_;
  Interner contents_;
  std::vector<Rank> ranks_;  // programs, and memory to compute in
  bool mismatch_ = false;
  std::deque<RankStates> states_;
  std::unique_ptr<Meetings> meetings_;  // unless they do not fit
};

}  // namespace gradledger::search
