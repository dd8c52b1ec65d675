// Ranks that meet in calls which do not fit wait for ever; the others go on until they wait too, in whatever order ranks run.
#include <gtest/gtest.h>

#include "tests/support/scripted_engine.h"

namespace gradledger::testing {
namespace {

// Of four ranks, 0 and 1 are group 1, 2 and 3 group 2.
Slice all_reduced(std::uint32_t rank, std::uint64_t numel, ProgramWriter& w) {
  const Slice x = w.whole(w.declare("x", Dtype::float32, numel));
  w.allocate(x.buffer);
  w.fill(x, rank);
  w.collective({.kind = CollectiveKind::all_reduce, .group = rank < 2 ? 1u : 2u, .input = x, .output = x});
  return x;
}

std::vector<ScriptedRun> with_every_seed(const std::function<void(std::uint32_t, ProgramWriter&)>& handle) {
  ScriptedEngine::Hooks hooks;
  hooks.handle = [&](std::uint32_t rank, const Event&, ProgramWriter& w) { handle(rank, w); };
  std::vector<ScriptedRun> out;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    RunOptions options;
    options.schedule.seed = seed;
    out.push_back(run_scripted(4, hooks, options, {step()}, 2));
  }
  return out;
}

TEST(mismatches, leave_ranks_outside_to_their_end) {
  for (const ScriptedRun& run : with_every_seed([](std::uint32_t rank, ProgramWriter&w) {
         const Slice x = all_reduced(rank, rank == 0 ? 4 : 8, w);
         w.synchronize();
         w.observe(w.view("x", {{x, 0, 0}}), Role::scratch, 1.0, true);
       })) {
    EXPECT_FALSE(run.summary.completed);
    EXPECT_EQ(run.seen.mismatches, 1u);
    EXPECT_FALSE(run.seen.deadlock_record.has_value());
    ASSERT_EQ(run.seen.snapshots.size(), 2u);
    for (const std::uint32_t rank : {2u, 3u}) EXPECT_EQ(run.seen.snapshots.at({rank, 0, "x"}), (std::vector<double>(8, 5.0)));
  }
}

TEST(mismatches, of_two_groups_are_both_met) {
  for (const ScriptedRun& run : with_every_seed([](std::uint32_t rank, ProgramWriter&w) {
         if (rank >= 2) all_reduced(rank, 4, w);
         all_reduced(rank, rank % 2 == 0 ? 4 : 8, w);
       })) {
    EXPECT_EQ(run.seen.mismatches, 2u);
    EXPECT_EQ(run.seen.collectives.size(), 6u);
  }
}

}  // namespace
}  // namespace gradledger::testing
