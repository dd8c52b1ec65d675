#include <gtest/gtest.h>

#include <set>

#include "sim/frameworks/framework.h"
#include "tests/support/scripted_engine.h"

namespace gradledger::testing {
namespace {

using Hooks = ScriptedEngine::Hooks;

// A buffer of 8 fp32 elements, filled with the rank's number plus one, and a view of it.
struct Filled {
  Slice slice;
  ViewId view = 0;
};

Filled filled(ProgramWriter& w, const char* name, double value, std::uint64_t numel = 8, Dtype dtype = Dtype::float32) {
  const BufferId b = w.declare(name, dtype, numel);
  w.allocate(b);
  w.fill(w.whole(b), value);
  return {w.whole(b), w.view(name, {ViewPiece{w.whole(b), 0, 0}})};
}

TEST(collective_matching, an_all_reduce_runs_when_every_rank_has_reached_it) {
  Hooks hooks;
  hooks.handle = [](std::uint32_t rank, const Event&, ProgramWriter& w) {
    const Filled x = filled(w, "x", rank + 1.0);
    w.collective({.kind = CollectiveKind::all_reduce, .input = x.slice, .output = x.slice});
    w.observe(x.view, Role::scratch, 1.0, false);
  };
  const ScriptedRun run = run_scripted(3, hooks);
  EXPECT_TRUE(run.summary.completed);
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(run.seen.snapshots.at({rank, 0, "x"}), std::vector<double>(8, 6.0));
  EXPECT_EQ(run.seen.collectives.size(), 3u);
}

TEST(collective_matching, a_rank_that_never_comes_is_a_deadlock_that_names_who_waits_and_since_when) {
  Hooks hooks;
  hooks.handle = [](std::uint32_t rank, const Event& event, ProgramWriter& w) {
    if (!event.is<events::Step>() || rank == 1) return;
    const Filled x = filled(w, "x", 1.0);
    w.collective({.kind = CollectiveKind::all_reduce, .input = x.slice, .output = x.slice});
  };
  const ScriptedRun run = run_scripted(3, hooks, {}, {event(ScriptKind::forward), step()});
  EXPECT_FALSE(run.summary.completed);
  ASSERT_TRUE(run.seen.deadlock_record.has_value());
  const std::vector<WaitingRank>& ranks = run.seen.deadlock_record->ranks;
  ASSERT_EQ(ranks.size(), 3u);
  for (std::uint32_t rank : {0u, 2u}) {
    ASSERT_TRUE(ranks[rank].collective.has_value());
    EXPECT_EQ(ranks[rank].collective->kind, CollectiveKind::all_reduce);
    EXPECT_EQ(ranks[rank].collective->numel, 8u);
    EXPECT_EQ(ranks[rank].event, 1u);
  }
  EXPECT_TRUE(ranks[1].finished);
  EXPECT_FALSE(ranks[1].collective.has_value());
}

// Stages of a pipeline: ranks 0 and 1 are group 1, ranks 2 and 3 group 2.
TEST(process_groups, meet_without_the_ranks_outside_and_gather_in_the_order_of_their_members) {
  Hooks hooks;
  hooks.handle = [](std::uint32_t rank, const Event&, ProgramWriter& w) {
    if (rank < 2) return;
    const Filled one = filled(w, "one", rank, 4), both = filled(w, "both", 0.0, 8), sum = filled(w, "sum", 10.0 * rank, 4);
    w.collective({.kind = CollectiveKind::all_gather, .group = 2, .input = one.slice, .output = both.slice});
    w.collective({.kind = CollectiveKind::reduce, .group = 2, .root = 3, .input = sum.slice, .output = sum.slice});
    w.synchronize();
    for (const Filled& x : {both, sum}) w.observe(x.view, Role::scratch, 1.0, true);
  };
  const ScriptedRun run = run_scripted(4, hooks, {}, {step()}, 2);
  EXPECT_TRUE(run.summary.completed);
  EXPECT_EQ(run.seen.snapshots.at({2, 0, "both"}), (std::vector<double>{2, 2, 2, 2, 3, 3, 3, 3}));
  EXPECT_EQ(run.seen.snapshots.at({3, 0, "sum"}), (std::vector<double>{50, 50, 50, 50}));
  EXPECT_EQ(run.seen.snapshots.at({2, 0, "sum"}), (std::vector<double>{20, 20, 20, 20}));
}

TEST(process_groups, report_who_misses_and_what_differs_in_the_group_alone) {
  Hooks hooks;
  const auto with = [&](std::uint32_t small, bool all_come) {
    hooks.handle = [=](std::uint32_t rank, const Event&, ProgramWriter& w) {
      if (rank < 2 || (rank == 2 && !all_come)) return;
      const Filled x = filled(w, "x", 1.0, rank == 2 ? small : 8);
      w.collective({.kind = CollectiveKind::all_reduce, .group = 2, .input = x.slice, .output = x.slice});
    };
    return run_scripted(4, hooks, {}, {step()}, 2);
  };
  const ScriptedRun differs = with(4, true), waits = with(8, false);
  ASSERT_TRUE(differs.seen.mismatch_record.has_value());
  ASSERT_EQ(differs.seen.mismatch_record->calls.size(), 2u);
  EXPECT_EQ(differs.seen.mismatch_record->calls[0].rank, 2u);
  EXPECT_NE(differs.seen.mismatch_record->calls[1].text().find("in group 2"), std::string::npos);
  ASSERT_TRUE(waits.seen.deadlock_record.has_value());
  EXPECT_TRUE(waits.seen.deadlock_record->ranks[3].collective.has_value());
  EXPECT_FALSE(waits.seen.deadlock_record->ranks[0].collective.has_value());
}

TEST(collective_matching, collectives_issued_in_opposite_order_are_a_mismatch) {
  Hooks hooks;
  hooks.handle = [](std::uint32_t rank, const Event&, ProgramWriter& w) {
    const Filled small = filled(w, "small", 1.0, 4), large = filled(w, "large", 1.0, 8);
    for (const Filled& x : rank == 0 ? std::vector{small, large} : std::vector{large, small})
      w.collective({.kind = CollectiveKind::all_reduce, .input = x.slice, .output = x.slice});
  };
  const ScriptedRun run = run_scripted(2, hooks);
  ASSERT_TRUE(run.seen.mismatch_record.has_value());
  EXPECT_EQ(run.seen.mismatch_record->what, "size");
  ASSERT_EQ(run.seen.mismatch_record->calls.size(), 2u);
  EXPECT_EQ(run.seen.mismatch_record->calls[0].numel, 4u);
  EXPECT_EQ(run.seen.mismatch_record->calls[1].numel, 8u);
}

// Rank 1 calls `other` where the rest call a plain all_reduce sum of fp32.
std::string mismatch_of(const CollectiveCall& other, Dtype dtype = Dtype::float32) {
  Hooks hooks;
  hooks.handle = [&](std::uint32_t rank, const Event&, ProgramWriter& w) {
    const Filled x = filled(w, "x", 1.0, 8, rank == 1 ? dtype : Dtype::float32);
    CollectiveCall call = rank == 1 ? other : CollectiveCall{};
    call.input = call.output = x.slice;
    w.collective(call);
  };
  const ScriptedRun run = run_scripted(2, hooks);
  return run.seen.mismatch_record ? run.seen.mismatch_record->what : "";
}

TEST(collective_matching, kind_dtype_operator_and_root_must_fit) {
  EXPECT_EQ(mismatch_of({}), "");
  EXPECT_EQ(mismatch_of({.kind = CollectiveKind::broadcast}), "kind");
  EXPECT_EQ(mismatch_of({}, Dtype::bfloat16), "dtype");
  EXPECT_EQ(mismatch_of({.op = ReduceOp::avg}), "operator");
  EXPECT_EQ(mismatch_of({.root = 1}), "root");
}

// ---- memory -----------------------------------------------------------------------------------------------------------------------

TEST(poison, memory_that_was_never_written_is_reported_where_a_norm_reads_it) {
  Hooks hooks;
  hooks.handle = [](std::uint32_t, const Event&, ProgramWriter& w) {
    const BufferId b = w.declare("gradient", Dtype::float32, 8);
    w.allocate(b);
    w.fill(w.whole(b).part(0, 3), 1.0);
    const Filled norm = filled(w, "norm", 0.0, 1, Dtype::float64);
    w.squared_norm(norm.slice, w.whole(b));
  };
  const ScriptedRun run = run_scripted(1, hooks);
  ASSERT_EQ(run.seen.unwritten_records.size(), 1u);
  const UnwrittenRecord& record = run.seen.unwritten_records.front();
  EXPECT_EQ(record.buffer, "gradient");
  EXPECT_EQ(record.begin, 3u);
  EXPECT_EQ(record.end, 8u);
  EXPECT_FALSE(record.released);
}

TEST(poison, travels_with_copies_and_sums_and_collectives_to_where_it_is_read) {
  Hooks hooks;
  hooks.handle = [](std::uint32_t rank, const Event&, ProgramWriter& w) {
    const BufferId source = w.declare("source", Dtype::float32, 8);
    w.allocate(source);
    w.fill(w.whole(source).part(0, rank == 1 ? 5 : 8), 1.0);
    const Filled sum = filled(w, "sum", 0.0);
    const Filled copy = filled(w, "copy", 0.0);
    w.accumulate(sum.slice, w.whole(source));
    w.copy(copy.slice, sum.slice);
    w.collective({.input = copy.slice, .output = copy.slice});
    w.observe(copy.view, Role::reduced_accumulator, 1.0, false);
  };
  const ScriptedRun run = run_scripted(2, hooks);
  // Rank 0 wrote everything itself; what it receives from rank 1 is poison all the same.
  std::set<std::uint32_t> ranks;
  for (const UnwrittenRecord& record : run.seen.unwritten_records) {
    EXPECT_EQ(record.buffer, "copy");
    EXPECT_EQ(record.begin, 5u);
    ranks.insert(record.rank);
  }
  EXPECT_EQ(ranks, (std::set<std::uint32_t>{0, 1}));
}

// 5 / 3 and 5 RN(1 / 3) differ in their last bit.
TEST(quotients, are_products_with_a_reciprocal_on_a_device_where_the_executor_is_told_so) {
  Hooks hooks;
  hooks.handle = [](std::uint32_t, const Event&, ProgramWriter& w) {
    for (const char* name : {"device", "host"}) {
      OnStream on(w, name == std::string_view("host") ? Stream::host : Stream::compute);
      const Filled x = filled(w, name, 5.0);
      w.divide(x.slice, 3.0);
      w.observe(x.view, Role::scratch, 1.0, false);
    }
  };
  const std::vector<double> quotient(8, 0x1.aaaaaap+0), product(8, 0x1.aaaaacp+0);
  for (Division division : {Division::quotient, Division::reciprocal}) {
    const ScriptedRun run = run_scripted(1, hooks, {}, {step()}, 1, division);
    EXPECT_EQ(run.seen.snapshots.at({0, 0, "device"}), division == Division::quotient ? quotient : product);
    EXPECT_EQ(run.seen.snapshots.at({0, 0, "host"}), quotient);
  }
}

TEST(poison, padding_that_nobody_reads_raises_no_alarm) {
  Hooks hooks;
  hooks.handle = [](std::uint32_t, const Event&, ProgramWriter& w) {
    const BufferId padded = w.declare("padded", Dtype::float32, 8);
    w.allocate(padded);
    w.fill(w.whole(padded).part(0, 6), 1.0);
    w.divide(w.whole(padded), 2.0);
    const Slice own = w.whole(padded).part(0, 4);
    w.collective({.kind = CollectiveKind::reduce_scatter, .input = w.whole(padded), .output = own});
    const ViewId view = w.view("own", {ViewPiece{own.part(0, 2), 0, 0}, ViewPiece{own.part(2, 2), -1, 0}});
    w.observe(view, Role::reduced_accumulator, 1.0, false);
  };
  EXPECT_TRUE(run_scripted(2, hooks).seen.unwritten_records.empty());
}

TEST(poison, released_memory_is_reported_as_released) {
  Hooks hooks;
  hooks.handle = [](std::uint32_t, const Event&, ProgramWriter& w) {
    const Filled x = filled(w, "x", 1.0);
    w.release(x.slice.buffer);
    w.observe(x.view, Role::applied_gradient, 1.0, false);
  };
  const ScriptedRun run = run_scripted(1, hooks);
  ASSERT_EQ(run.seen.unwritten_records.size(), 1u);
  EXPECT_TRUE(run.seen.unwritten_records.front().released);
}

TEST(memory, the_peak_counts_what_is_held_at_once_by_all_ranks) {
  Hooks hooks;
  hooks.handle = [](std::uint32_t, const Event&, ProgramWriter& w) {
    const Filled a = filled(w, "a", 1.0, 100);
    w.release(a.slice.buffer);
    filled(w, "b", 1.0, 60);
    filled(w, "c", 1.0, 30, Dtype::bfloat16);
  };
  EXPECT_EQ(run_scripted(1, hooks).summary.bytes_peak, 400u);
}

// ---- streams and schedules ----------------------------------------------------------------------------------------------------------

// The compute stream fills a bucket twice while the communication stream copies it out; `waits` says whether the second fill waits.
Hooks bucket_reuse(bool waits) {
  Hooks hooks;
  hooks.handle = [waits](std::uint32_t, const Event&, ProgramWriter& w) {
    const Filled bucket = filled(w, "bucket", 1.0), out = filled(w, "out", 0.0);
    const std::uint32_t produced = w.record();
    std::uint32_t copied = 0;
    {
      OnStream communication(w, Stream::communication);
      w.wait(produced);
      w.copy(out.slice, bucket.slice);
      copied = w.record();
    }
    if (waits) w.wait(copied);
    w.fill(bucket.slice, 2.0);
    w.synchronize();
    w.observe(out.view, Role::scratch, 1.0, true);
  };
  return hooks;
}

RunOptions seeded(std::uint64_t seed) {
  RunOptions options;
  options.schedule.seed = seed;
  return options;
}

TEST(schedules, a_missing_wait_shows_in_the_values_under_some_seed) {
  std::set<double> outcomes;
  for (std::uint64_t seed = 0; seed < 64; ++seed) outcomes.insert(run_scripted(1, bucket_reuse(false), seeded(seed)).seen.snapshots.at({0, 0, "out"}).front());
  EXPECT_EQ(outcomes, (std::set<double>{1.0, 2.0}));
}

TEST(schedules, with_the_wait_every_seed_gives_the_same_values) {
  std::set<std::uint64_t> traces, values;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    const ScriptedRun run = run_scripted(3, bucket_reuse(true), seeded(seed));
    EXPECT_EQ(run.seen.snapshots.at({0, 0, "out"}).front(), 1.0);
    traces.insert(run.summary.trace_hash);
    values.insert(run.summary.value_hash);
  }
  EXPECT_EQ(values.size(), 1u);
  EXPECT_GT(traces.size(), 1u);
}

TEST(schedules, the_same_seed_gives_the_same_trace) {
  const ScriptedRun a = run_scripted(3, bucket_reuse(false), seeded(5)), b = run_scripted(3, bucket_reuse(false), seeded(5));
  EXPECT_EQ(a.summary.trace_hash, b.summary.trace_hash);
  EXPECT_EQ(a.summary.decisions, b.summary.decisions);
}

TEST(schedules, recorded_decisions_replay_to_the_same_trace) {
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    const ScriptedRun recorded = run_scripted(2, bucket_reuse(false), seeded(seed));
    RunOptions options;
    options.schedule.policy = Schedule::Policy::replay;
    options.schedule.decisions = recorded.summary.decisions;
    options.schedule.seed = seed + 1000;  // must not matter
    const ScriptedRun replayed = run_scripted(2, bucket_reuse(false), options);
    EXPECT_FALSE(replayed.summary.replay_diverged);
    EXPECT_EQ(recorded.summary.trace_hash, replayed.summary.trace_hash);
  }
}

TEST(schedules, a_decision_that_is_not_possible_is_reported_and_the_run_goes_on) {
  RunOptions options;
  options.schedule.policy = Schedule::Policy::replay;
  options.schedule.decisions = {99};
  const ScriptedRun run = run_scripted(2, bucket_reuse(true), options);
  EXPECT_TRUE(run.summary.replay_diverged);
  EXPECT_TRUE(run.summary.completed);
}

TEST(schedules, round_robin_is_deterministic_and_needs_no_seed) {
  RunOptions a, b;
  a.schedule = {Schedule::Policy::round_robin, 1, {}};
  b.schedule = {Schedule::Policy::round_robin, 2, {}};
  EXPECT_EQ(run_scripted(3, bucket_reuse(false), a).summary.trace_hash, run_scripted(3, bucket_reuse(false), b).summary.trace_hash);
}

TEST(streams, a_device_operation_behind_host_work_waits_until_the_host_has_done_it) {
  // Host: fills a pinned buffer; device: copies it. Enqueued after the host work, so never before it.
  Hooks hooks;
  hooks.handle = [](std::uint32_t, const Event&, ProgramWriter& w) {
    const BufferId pinned = w.declare("pinned", Dtype::float32, 8, MemorySpace::host);
    const Filled out = filled(w, "out", 0.0);
    {
      OnStream host(w, Stream::host);
      w.allocate(pinned);
      w.fill(w.whole(pinned), 3.0);
    }
    w.copy(out.slice, w.whole(pinned));
    w.synchronize();
    w.observe(out.view, Role::scratch, 1.0, true);
  };
  for (std::uint64_t seed = 0; seed < 32; ++seed) EXPECT_EQ(run_scripted(1, hooks, seeded(seed)).seen.snapshots.at({0, 0, "out"}).front(), 3.0);
}

// ---- decisions ----------------------------------------------------------------------------------------------------------------------

TEST(host_decisions, an_engine_goes_on_with_the_value_that_the_device_computed) {
  Hooks hooks;
  hooks.handle = [](std::uint32_t rank, const Event&, ProgramWriter& w) {
    const Filled x = filled(w, "x", rank + 1.0, 1);
    w.collective({.input = x.slice, .output = x.slice});
    w.read(x.slice, 0);
  };
  hooks.resume = [](std::uint32_t, double value, ProgramWriter& w) {
    const Filled y = filled(w, "y", value * 10);
    w.observe(y.view, Role::scratch, 1.0, false);
  };
  const ScriptedRun run = run_scripted(2, hooks);
  EXPECT_TRUE(run.summary.completed);
  EXPECT_EQ(run.seen.snapshots.at({0, 0, "y"}).front(), 30.0);
  EXPECT_EQ(run.seen.snapshots.at({1, 0, "y"}).front(), 30.0);
}

TEST(engine_errors, end_the_rank_that_raised_after_what_it_had_enqueued) {
  Hooks hooks;
  hooks.handle = [](std::uint32_t, const Event& event, ProgramWriter& w) {
    const Filled x = filled(w, event.is<events::Step>() ? "second" : "first", 1.0);
    w.observe(x.view, Role::scratch, 1.0, false);
    if (event.is<events::Step>()) throw FrameworkError{"TypeError", "as in Python"};
  };
  const ScriptedRun run = run_scripted(2, hooks, {}, {event(ScriptKind::forward), step(), event(ScriptKind::forward)});
  EXPECT_FALSE(run.summary.completed);
  ASSERT_EQ(run.seen.errors.size(), 2u);
  EXPECT_EQ(run.seen.errors[0].type, "TypeError");
  EXPECT_EQ(run.seen.errors[0].event, 1u);
  EXPECT_TRUE(run.seen.snapshots.contains({0, 1, "second"}));
  EXPECT_FALSE(run.seen.snapshots.contains({0, 2, "first"}));
}

TEST(recorded_programs, a_linear_run_is_repeated_with_other_data_without_the_engine) {
  Scenario scenario = base_scenario(2, {5}, Dtype::float32);
  scenario.script = {backward(2), step()};
  const auto timeline = make_timeline(scenario);
  int made = 0;
  HostExecutor executor(scenario, *timeline, CollectiveArithmetic::nccl_ring, [&made](const EngineContext& c) {
    ++made;
    return make_engine(c);
  });
  RunOptions options;
  options.linear = true;
  Keeper first, second;
  const RunSummary a = executor.run(CountingSource{}, options, first);
  const RunSummary b = executor.run(CountingSource{}, options, second);
  EXPECT_EQ(made, 2);
  EXPECT_EQ(a.trace_hash, b.trace_hash);
  EXPECT_EQ(first.snapshots, second.snapshots);
  EXPECT_FALSE(first.snapshots.empty());
}

}  // namespace
}  // namespace gradledger::testing
