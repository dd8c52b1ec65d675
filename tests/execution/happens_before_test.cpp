// The check of stream order, on programs written by hand.
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "sim/base/hash.h"
#include "sim/execution/happens_before.h"
#include "tests/support/scripted_engine.h"

namespace gradledger::testing {
namespace {

// A program with two buffers of 8 elements that are there before anything else.
struct Written {
  Program program;
  ProgramWriter w{program};
  Slice bucket, other;

  Written() {
    OnStream host(w, Stream::host);
    for (Slice* slice : {&bucket, &other}) {
      const BufferId b = w.declare(slice == &bucket ? "bucket" : "other", Dtype::float32, 8);
      w.allocate(b);
      *slice = w.whole(b);
    }
  }

  void on(Stream stream, const std::function<void(ProgramWriter&)>& body) {
    OnStream there(w, stream);
    body(w);
  }
  void fill(Stream stream, Slice slice) {
    on(stream, [&](ProgramWriter& writer) { writer.fill(slice, 1.0); });
  }
  void copy(Stream stream, Slice target, Slice source) {
    on(stream, [&](ProgramWriter& writer) { writer.copy(target, source); });
  }
  // `later` waits for what `earlier` has been given so far.
  void order(Stream earlier, Stream later) {
    std::uint32_t reached = 0;
    on(earlier, [&](ProgramWriter& writer) { reached = writer.record(); });
    on(later, [&](ProgramWriter& writer) { writer.wait(reached); });
  }
  std::vector<RaceRecord> races() const { return stream_races(program, 3); }
};

TEST(happens_before, a_write_that_does_not_wait_for_a_reader_is_named_with_both_operations_and_their_elements) {
  Written p;
  p.fill(Stream::compute, p.bucket);
  p.order(Stream::compute, Stream::communication);
  p.copy(Stream::communication, p.other.part(0, 4), p.bucket.part(2, 4));
  p.w.begin_event(1);
  p.fill(Stream::compute, p.bucket.part(0, 3));
  const auto races = p.races();
  ASSERT_EQ(races.size(), 1u);
  EXPECT_EQ(races[0].rank, 3u);
  EXPECT_EQ(races[0].event, 1u);
  EXPECT_EQ(races[0].buffer, "bucket");
  EXPECT_EQ(races[0].begin, 2u);
  EXPECT_EQ(races[0].end, 3u);
  EXPECT_EQ(races[0].first, (RacingOperation{"copy", "communication", 0, 5}));
  EXPECT_EQ(races[0].second, (RacingOperation{"fill", "compute", 1, 6}));
}

TEST(happens_before, an_optimizer_reads_its_gradient_and_writes_its_weights) {
  for (const bool gradient : {true, false})
    for (const bool waits : {true, false}) {
      Written p;
      p.fill(Stream::communication, gradient ? p.other : p.bucket);
      if (waits) p.order(Stream::communication, Stream::compute);
      UpdateCall call;
      call.parameter = p.bucket;
      call.gradient = p.other;
      p.on(Stream::compute, [&](ProgramWriter& w) { w.sgd(call); });
      const auto races = p.races();
      ASSERT_EQ(races.size(), waits ? 0u : 1u) << gradient;
      if (!waits) {
        EXPECT_EQ(races[0].buffer, gradient ? "other" : "bucket");
      }
    }
}

TEST(happens_before, a_wait_orders_and_so_does_a_chain_of_waits) {
  Written p;
  p.fill(Stream::compute, p.bucket);
  p.order(Stream::compute, Stream::communication);
  p.order(Stream::communication, Stream::copy);
  p.copy(Stream::copy, p.other, p.bucket);
  p.order(Stream::copy, Stream::compute);
  p.fill(Stream::compute, p.bucket);
  EXPECT_TRUE(p.races().empty());
}

TEST(happens_before, a_wait_for_what_was_recorded_too_early_orders_nothing_later) {
  Written p;
  std::uint32_t early = 0;
  p.on(Stream::compute, [&](ProgramWriter& w) { early = w.record(); });
  p.fill(Stream::compute, p.bucket);
  p.on(Stream::communication, [&](ProgramWriter& w) { w.wait(early); });
  p.copy(Stream::communication, p.other, p.bucket);
  ASSERT_EQ(p.races().size(), 1u);
  EXPECT_EQ(p.races()[0].first.operation, "fill");
}

TEST(happens_before, readers_do_not_race_and_neither_do_disjoint_elements) {
  Written p;
  p.on(Stream::host, [&](ProgramWriter& w) { w.fill(p.bucket, 0.0); });
  p.copy(Stream::compute, p.other.part(0, 4), p.bucket.part(0, 4));
  p.copy(Stream::communication, p.other.part(4, 4), p.bucket.part(0, 4));
  EXPECT_TRUE(p.races().empty());
}

TEST(happens_before, a_write_waits_for_each_of_several_readers) {
  for (const Stream waits_for : {Stream::communication, Stream::copy}) {
    Written p;
    p.on(Stream::host, [&](ProgramWriter& w) { w.fill(p.bucket, 0.0); });
    p.copy(Stream::communication, p.other.part(0, 4), p.bucket.part(0, 4));
    p.copy(Stream::copy, p.other.part(4, 4), p.bucket.part(0, 4));
    p.order(waits_for, Stream::compute);
    p.fill(Stream::compute, p.bucket);
    ASSERT_EQ(p.races().size(), 1u);
    EXPECT_EQ(p.races()[0].first.stream, waits_for == Stream::copy ? "communication" : "copy");
    p.order(waits_for == Stream::copy ? Stream::communication : Stream::copy, Stream::compute);
    EXPECT_EQ(p.races().size(), 1u) << "too late";
  }
}

TEST(happens_before, what_the_host_did_is_over_for_all_that_it_enqueues_later_but_not_the_other_way_round) {
  Written p;
  p.fill(Stream::host, p.bucket);
  p.copy(Stream::copy, p.other, p.bucket);
  EXPECT_TRUE(p.races().empty());
  p.fill(Stream::host, p.bucket);
  ASSERT_EQ(p.races().size(), 1u);
  EXPECT_EQ(p.races()[0].second.stream, "host");
}

TEST(happens_before, a_synchronize_orders_everything_before_it_and_a_snapshots_own_does_not) {
  for (const bool for_snapshot : {false, true}) {
    Written p;
    p.fill(Stream::communication, p.bucket);
    p.w.synchronize(for_snapshot);
    p.copy(Stream::compute, p.other, p.bucket);
    EXPECT_EQ(p.races().size(), for_snapshot ? 1u : 0u);
  }
}

TEST(happens_before, a_value_that_the_host_reads_lets_it_go_on_after_what_made_it) {
  Written p;
  p.fill(Stream::communication, p.bucket);
  p.order(Stream::communication, Stream::compute);
  p.on(Stream::compute, [&](ProgramWriter& w) { w.read(p.other.part(0, 1), 0); });
  p.fill(Stream::host, p.bucket);
  EXPECT_TRUE(p.races().empty());
}

TEST(happens_before, memory_that_is_released_under_a_collective_is_a_race) {
  Written p;
  p.fill(Stream::host, p.bucket);
  p.on(Stream::communication, [&](ProgramWriter& w) { w.collective({.input = p.bucket, .output = p.bucket}); });
  p.on(Stream::compute, [&](ProgramWriter& w) { w.release(p.bucket.buffer); });
  const auto races = p.races();
  ASSERT_EQ(races.size(), 1u);
  EXPECT_EQ(races[0].first.operation, "all_reduce (gradient)");
  EXPECT_EQ(races[0].second.operation, "release");
}

TEST(happens_before, one_kind_of_race_is_named_once_and_their_number_is_limited) {
  Written p;
  for (int i = 0; i < 10; ++i) {
    p.fill(Stream::communication, p.bucket);
    p.fill(Stream::compute, p.bucket);
  }
  EXPECT_EQ(p.races().size(), 2u);  // either of the two first
}

// ---- in a run ---------------------------------------------------------------------------------------------------------------------

// The bucket is filled, reduced on another stream, and filled again without a wait.
ScriptedEngine::Hooks refill() {
  ScriptedEngine::Hooks hooks;
  hooks.handle = [](std::uint32_t rank, const Event&, ProgramWriter& w) {
    const BufferId b = w.declare("bucket of event " + std::to_string(w.event()), Dtype::float32, 8), r = w.declare("result", Dtype::float32, 8);
    w.allocate(b);
    w.allocate(r);
    const Slice bucket = w.whole(b), result = w.whole(r);
    w.fill(bucket, rank + 1.0);
    const std::uint32_t filled = w.record();
    {
      OnStream communication(w, Stream::communication);
      w.wait(filled);
      w.collective({.input = bucket, .output = result});
    }
    w.fill(bucket, 100.0);
    w.synchronize();
    OnStream host(w, Stream::host);
    w.observe(w.view("result", {ViewPiece{result, 0, 0}}), Role::scratch, 1.0, true);
  };
  return hooks;
}

// Buffers are looked at as wholes first, where two that touch different parts of one seem to race.
TEST(stream_races, are_those_of_parts_whatever_buffers_seem_to_do_as_wholes) {
  std::uint32_t racing = 0, apart = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Written p;
    SplitMix64 random(seed);
    const auto stream = [&] { return std::array{Stream::host, Stream::compute, Stream::communication, Stream::copy}[random.below(4)]; };
    const auto part = [&](Slice of) { return of.part(2 * random.below(4), 2); };
    for (std::uint32_t n = 3 + random.below(6); n > 0; --n) {
      const Stream on = stream();
      if (random.below(3) == 0) p.fill(on, part(p.bucket));
      else if (random.below(2) == 0) p.copy(on, part(p.other), part(p.bucket));
      else p.order(stream(), on);
    }
    StreamCheck check(3);
    check.follow(p.program);
    ASSERT_EQ(p.races().size(), check.races().size()) << "seed " << seed;
    for (std::size_t i = 0; i < check.races().size(); ++i) {
      EXPECT_EQ(p.races()[i].first, check.races()[i].first) << "seed " << seed;
      EXPECT_EQ(p.races()[i].second, check.races()[i].second) << "seed " << seed;
    }
    ++(check.races().empty() ? apart : racing);
  }
  EXPECT_GT(racing, 50u);
  EXPECT_GT(apart, 50u);
}

TEST(stream_races, are_reported_by_every_run_that_asks_whatever_its_schedule) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    RunOptions options;
    options.schedule.seed = seed;
    EXPECT_TRUE(run_scripted(2, refill(), options).seen.races.empty());
    options.check_streams = true;
    const ScriptedRun run = run_scripted(2, refill(), options);
    ASSERT_EQ(run.seen.races.size(), 2u) << "one on each rank";
    EXPECT_EQ(run.seen.races[1].rank, 1u);
    EXPECT_EQ(run.seen.races[1].second.stream, "compute");
  }
}

// A script of several events, so that operations of the earlier ones are gone when the later ones are written.
TEST(stream_races, are_the_same_where_operations_are_let_go_that_ran) {
  const std::vector<ScriptItem> script(5, event(ScriptKind::forward));
  RunOptions options;
  options.linear = options.check_streams = true;
  const ScriptedRun kept = run_scripted(2, refill(), options, script);
  options.once = true;
  const ScriptedRun let_go = run_scripted(2, refill(), options, script);
  EXPECT_EQ(let_go.summary.trace_hash, kept.summary.trace_hash);
  EXPECT_EQ(let_go.summary.value_hash, kept.summary.value_hash);
  ASSERT_EQ(kept.seen.races.size(), 10u) << "one for each event and rank";
  ASSERT_EQ(let_go.seen.races.size(), kept.seen.races.size());
  const auto fields = [](const RacingOperation& o) { return std::tuple(o.operation, o.stream, o.event, o.number); };
  for (std::size_t i = 0; i < kept.seen.races.size(); ++i) {
    const RaceRecord &a = kept.seen.races[i], &b = let_go.seen.races[i];
    EXPECT_EQ(std::tuple(a.rank, a.event, a.buffer, a.begin, a.end), std::tuple(b.rank, b.event, b.buffer, b.begin, b.end));
    EXPECT_EQ(fields(a.first), fields(b.first));
    EXPECT_EQ(fields(a.second), fields(b.second));
  }
}

TEST(stream_races, show_in_some_schedule_and_never_in_the_order_of_enqueueing) {
  RunOptions options;
  options.schedule.policy = Schedule::Policy::in_order;
  const ScriptedRun in_order = run_scripted(2, refill(), options);
  EXPECT_TRUE(in_order.summary.completed);
  EXPECT_EQ(in_order.seen.snapshots.at({0, 0, "result"}), std::vector<double>(8, 3.0));
  std::set<std::uint64_t> hashes;
  options.schedule.policy = Schedule::Policy::seeded;
  for (options.schedule.seed = 0; options.schedule.seed < 16; ++options.schedule.seed) hashes.insert(run_scripted(2, refill(), options).summary.value_hash);
  hashes.erase(in_order.summary.value_hash);
  EXPECT_FALSE(hashes.empty());
}

}  // namespace
}  // namespace gradledger::testing
