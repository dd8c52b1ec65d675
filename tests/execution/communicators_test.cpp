// A framework may have several communicators of the same ranks, as DeepSpeed has of the world.
#include <gtest/gtest.h>

#include "tests/support/scripted_engine.h"

namespace gradledger::testing {
namespace {

// Two ranks call an all-reduce and a broadcast, one after the other on one stream; the broadcast of a communicator.
ScriptedRun sum_and_broadcast(std::uint32_t communicator, bool rank_1_sums_first) {
  ScriptedEngine::Hooks hooks;
  hooks.handle = [=](std::uint32_t rank, const Event&, ProgramWriter& w) {
    const Slice x = w.whole(w.declare("x", Dtype::float32, 8));
    w.allocate(x.buffer);
    w.fill(x, rank + 1.0);
    const CollectiveCall sum{.kind = CollectiveKind::all_reduce, .input = x, .output = x};
    const CollectiveCall broadcast{.kind = CollectiveKind::broadcast, .communicator = communicator, .root = 1, .input = x, .output = x};
    const bool sums_first = rank == 0 || rank_1_sums_first;
    w.collective(sums_first ? sum : broadcast);
    w.collective(sums_first ? broadcast : sum);
  };
  return run_scripted(2, hooks);
}

TEST(communicators, of_one_group_do_not_meet) {
  const ScriptedRun run = sum_and_broadcast(1, false);
  EXPECT_FALSE(run.seen.mismatch_record.has_value());
  ASSERT_TRUE(run.seen.deadlock_record.has_value());
  const std::vector<WaitingRank>& ranks = run.seen.deadlock_record->ranks;
  ASSERT_TRUE(ranks[0].collective.has_value() && ranks[1].collective.has_value());
  EXPECT_EQ(ranks[0].collective->kind, CollectiveKind::all_reduce);
  EXPECT_EQ(ranks[1].collective->kind, CollectiveKind::broadcast);
}

TEST(communicators, are_one_line_of_calls_where_there_is_one) {
  const ScriptedRun run = sum_and_broadcast(0, false);
  ASSERT_TRUE(run.seen.mismatch_record.has_value());
  EXPECT_EQ(run.seen.mismatch_record->what, "kind");
}

TEST(communicators, count_their_calls_by_themselves) {
  const ScriptedRun run = sum_and_broadcast(1, true);
  EXPECT_TRUE(run.summary.completed);
  ASSERT_EQ(run.seen.collectives.size(), 4u);
  for (const CollectiveRecord& call : run.seen.collectives) {
    EXPECT_EQ(call.sequence, 0u);
    EXPECT_EQ(call.communicator, call.kind == CollectiveKind::broadcast ? 1u : 0u);
  }
  const ScriptedRun of_one = sum_and_broadcast(0, true);
  ASSERT_EQ(of_one.seen.collectives.size(), 4u);
  for (const CollectiveRecord& call : of_one.seen.collectives) EXPECT_EQ(call.sequence, call.kind == CollectiveKind::broadcast ? 1u : 0u);
}

}  // namespace
}  // namespace gradledger::testing
