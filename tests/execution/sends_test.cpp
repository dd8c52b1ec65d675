// Ranks that wait for what another one sends, as stages of a pipeline do.
#include <gtest/gtest.h>

#include "tests/support/scripted_engine.h"

namespace gradledger::testing {
namespace {

using Hooks = ScriptedEngine::Hooks;

constexpr std::uint8_t forward_line = 0, back_line = 1;

Slice number(const char* name, double value, ProgramWriter& w) {
  const Slice x = w.whole(w.declare(name, Dtype::float32, 1));
  w.allocate(x.buffer);
  w.fill(x, value);
  return x;
}

// Rank 0 sends forward and waits for the way back; rank 1 answers, in so many events.
Hooks two_stages(std::uint32_t answers) {
  Hooks hooks;
  hooks.handle = [=](std::uint32_t rank, const Event&, ProgramWriter& w) {
    static_cast<void>(number("x", 1.0, w));
    if (rank == 0) {
      w.send(1, forward_line);
      w.receive(1, back_line);
    } else {
      w.receive(-1, forward_line);
      for (std::uint32_t i = 0; i < answers; ++i) w.send(-1, back_line);
    }
  };
  return hooks;
}

TEST(sends, are_received_by_the_rank_that_waits_under_every_schedule) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const ScriptedRun run = run_scripted(2, two_stages(1), {.schedule = {.seed = seed}}, {step(), step(), step()});
    EXPECT_TRUE(run.summary.completed);
    EXPECT_FALSE(run.seen.deadlock_record.has_value());
  }
}

TEST(sends, that_never_come_are_a_deadlock_that_names_the_sender_and_since_when) {
  Hooks hooks = two_stages(1);
  const auto both = hooks.handle;
  hooks.handle = [both](std::uint32_t rank, const Event& event, ProgramWriter& w) {
    if (event.is<events::Step>() && rank == 1) throw FrameworkError{"AssertionError", "not now"};
    both(rank, event, w);
  };
  const ScriptedRun run = run_scripted(2, hooks, {}, {event(ScriptKind::forward), step()});
  EXPECT_FALSE(run.summary.completed);
  ASSERT_TRUE(run.seen.deadlock_record.has_value());
  const std::vector<WaitingRank>& ranks = run.seen.deadlock_record->ranks;
  EXPECT_EQ(ranks[0].sender, std::optional<std::uint32_t>(1));
  EXPECT_EQ(ranks[0].event, 1u);
  EXPECT_FALSE(ranks[0].collective.has_value());
  EXPECT_FALSE(ranks[0].finished);
  EXPECT_TRUE(ranks[1].finished);
  EXPECT_FALSE(ranks[1].sender.has_value());
}

TEST(sends, are_counted_each_line_by_itself) {
  Hooks hooks;
  hooks.handle = [](std::uint32_t rank, const Event&, ProgramWriter& w) {
    if (rank == 0) w.send(1, forward_line);
    else w.receive(-1, back_line);
  };
  EXPECT_TRUE(run_scripted(2, hooks).seen.deadlock_record.has_value());
}

TEST(sends, that_nobody_receives_hold_nobody_up) { EXPECT_TRUE(run_scripted(2, two_stages(3)).summary.completed); }

// What a stage sends is computed on its stream: it leaves when that has come there.
TEST(sends, wait_for_the_stream_that_they_are_on) {
  Hooks hooks;
  hooks.handle = [](std::uint32_t rank, const Event&, ProgramWriter& w) {
    if (rank == 1) return w.receive(-1, forward_line);
    if (rank == 0) {
      const Slice x = number("x", 1.0, w);
      w.collective({.kind = CollectiveKind::all_reduce, .input = x, .output = x});
      w.send(1, forward_line);
    }
  };
  const ScriptedRun run = run_scripted(2, hooks);
  ASSERT_TRUE(run.seen.deadlock_record.has_value());
  EXPECT_TRUE(run.seen.deadlock_record->ranks[0].collective.has_value());
  EXPECT_EQ(run.seen.deadlock_record->ranks[1].sender, std::optional<std::uint32_t>(0));
}

}  // namespace
}  // namespace gradledger::testing
