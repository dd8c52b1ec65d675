// Everything that a run shows, in words, so that two runs can be held against each other.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/producers/producers.h"
#include "sim/scenario/timeline.h"
#include "sim/trace/repeated_memory.h"
#include "tests/support/no_gradients.h"

namespace gradledger::testing {

// Everything that a run shows, by rank and event, in words. What streams of a rank do beside each other comes in the order of a schedule.
class InWords : public TraceSink {
 public:
  void weights(const WeightObservation& o) override {
    std::string text = fmt::format("{}{} as {} x {}:", o.buffer, o.at_end ? "" : " inside", static_cast<int>(o.role), o.scale);
    for (const WeightPiece& piece : o.pieces) {
      text += fmt::format(" [{} {}+{} {} {} {}", piece.parameter, piece.parameter_offset, piece.numel, static_cast<int>(piece.held), piece.shift, piece.constant);
      for (const WeightTerm& t : piece.terms) text += fmt::format(" {}-{} of {}-{} {} {}", t.backward_begin, t.backward_end, t.rank_begin, t.rank_end, t.shift, text_of(t.weight));
      text += "]";
    }
    add(o.rank, o.event, text);
  }
  void collective(const CollectiveRecord& r) override { add(r.rank, r.event, fmt::format("{} in {} number {} from {}", r.text(), r.group, r.sequence, r.root)); }
  void step_fact(const StepRecord& r) override { add(r.rank, r.event, fmt::format("fact {} {}", static_cast<int>(r.fact), r.value)); }
  void event_done(std::uint32_t rank, std::uint32_t event) override { add(rank, event, "done"); }
  void memory(const MemoryRecord&) override { ++allocations; }
  void engine_error(const EngineErrorRecord& r) override { add(r.rank, r.event, r.type + r.message); }
  void deadlock(const DeadlockRecord& r) override {
    for (const WaitingRank& rank : r.ranks) add(rank.rank, rank.event, fmt::format("waits {} {}", rank.finished, rank.collective ? rank.collective->sequence : never));
  }
  void mismatch(const MismatchRecord& r) override {
    ++mismatches;
    for (const CollectiveRecord& call : r.calls) add(call.rank, call.event, r.what + call.text());
  }
  void race(const RaceRecord& r) override {
    ++races;
    add(r.rank, r.event, fmt::format("race in {}: {} and {}", r.buffer, r.first.operation, r.second.operation));
  }

  std::map<std::pair<std::uint32_t, std::uint32_t>, std::multiset<std::string>> lines;  // by rank, event
  std::uint64_t allocations = 0, races = 0, mismatches = 0;

 private:
  void add(std::uint32_t rank, std::uint32_t event, std::string text) { lines[{rank, event}].insert(std::move(text)); }
};
// The same, of a run that need not run what it has proven: rounds that repeat, ranks that do the same.
class InWordsOnce final : public InWords, public NeedsNoRepeatedMemory {};

struct Both {
  InWords all;
  InWordsOnce brief;
  RunSummary of_all, of_brief;

  bool passed_rounds() const { return brief.allocations < all.allocations; }
};

inline void run_both(const Scenario& scenario, Both& both, const EngineFactory& engines = {}) {
  const Timeline timeline = make_timeline(scenario).value();
  RunOptions options;
  options.linear = options.weights = options.once = options.check_streams = true;
  both.of_all = make_producer(scenario, timeline, {.engines = engines})->run(NoGradients(), options, both.all);
  if (both.all.races > 0) {  // which come out as the schedule has them
    both.all = {};
    options.schedule.policy = Schedule::Policy::in_order;
    both.of_all = make_producer(scenario, timeline, {.engines = engines})->run(NoGradients(), options, both.all);
  }
  both.of_brief = make_producer(scenario, timeline, {.engines = engines})->run(NoGradients(), options, both.brief);
  EXPECT_EQ(both.all.mismatches, both.brief.mismatches);
  if (both.all.mismatches > 0) return;  // how far each rank came by then is the schedule's
  EXPECT_EQ(both.of_all.operations, both.of_brief.operations);
  EXPECT_EQ(both.of_all.completed, both.of_brief.completed);
  EXPECT_EQ(both.all.lines.size(), both.brief.lines.size());
  for (const auto& [place, lines] : both.all.lines) {
    ASSERT_EQ(lines, both.brief.lines[place]) << "rank " << place.first << ", event " << place.second;
  }
}

}  // namespace gradledger::testing
