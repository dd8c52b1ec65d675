// Runs in the order in which operations were enqueued, and programs that a run leaves for the next one.
#include <gtest/gtest.h>

#include "sim/frameworks/framework.h"
#include "tests/support/scripted_engine.h"

namespace gradledger::testing {
namespace {

using Hooks = ScriptedEngine::Hooks;

// Rank 0 begins a reduction that it does not wait for, and then sends what rank 1 waits for before it takes part.
Hooks sends_behind_a_reduction() {
  Hooks hooks;
  hooks.handle = [](std::uint32_t rank, const Event&, ProgramWriter& w) {
    const Slice x = w.whole(w.declare("x", Dtype::float32, 4));
    w.allocate(x.buffer);
    w.fill(x, rank + 1.0);
    const std::uint32_t filled = w.record();
    if (rank == 1) w.receive(-1, 0);
    {
      const OnStream communication(w, Stream::communication);
      w.wait(filled);
      w.collective({.input = x, .output = x});
    }
    if (rank == 0) w.send(1, 0);
    w.synchronize();
    w.observe(w.view("x", {ViewPiece{x, 0, 0}}), Role::scratch, 1.0, true);
  };
  return hooks;
}

TEST(first_ready, goes_on_behind_a_reduction_that_waits_for_others) {
  const ScriptedRun run = run_scripted(2, sends_behind_a_reduction(), {.schedule = {.policy = Schedule::Policy::first_ready}}, {step(), step()});
  EXPECT_TRUE(run.summary.completed);
  for (std::uint32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(run.seen.snapshots.at({rank, 1, "x"}), std::vector<double>(4, 3.0));
}

TEST(in_order, waits_with_the_reduction) {
  const ScriptedRun run = run_scripted(2, sends_behind_a_reduction(), {.schedule = {.policy = Schedule::Policy::in_order}}, {step(), step()});
  EXPECT_FALSE(run.summary.completed);
  EXPECT_TRUE(run.seen.deadlock_record.has_value());
}

TEST(first_ready, shows_the_values_of_any_seed) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const ScriptedRun any = run_scripted(2, sends_behind_a_reduction(), {.schedule = {.seed = seed}}, {step(), step()});
    const ScriptedRun first = run_scripted(2, sends_behind_a_reduction(), {.schedule = {.policy = Schedule::Policy::first_ready}}, {step(), step()});
    EXPECT_EQ(any.summary.value_hash, first.summary.value_hash);
    EXPECT_EQ(any.summary.operations, first.summary.operations);
  }
}

// How many engines two runs on values make, of two ranks.
int engines_of_two_runs(Dtype model_dtype) {
  Scenario scenario = base_scenario(2, {5}, model_dtype);
  scenario.script = {backward(2), step()};
  const Timeline timeline = make_timeline(scenario).value();
  int made = 0;
  HostExecutor executor(scenario, timeline, CollectiveArithmetic::nccl_ring, [&made](const EngineContext& c) {
    ++made;
    return make_engine(c);
  });
  Keeper first, second;
  executor.run(CountingSource{}, {}, first);
  executor.run(CountingSource{}, {.schedule = {.policy = Schedule::Policy::first_ready}}, second);
  EXPECT_EQ(first.snapshots, second.snapshots);
  EXPECT_FALSE(first.snapshots.empty());
  return made;
}

TEST(recorded_programs, in_which_the_host_reads_no_value_are_written_once) { EXPECT_EQ(engines_of_two_runs(Dtype::float32), 2); }

TEST(recorded_programs, that_depend_on_an_overflow_are_written_for_each_run) { EXPECT_EQ(engines_of_two_runs(Dtype::float16), 4); }

}  // namespace
}  // namespace gradledger::testing
