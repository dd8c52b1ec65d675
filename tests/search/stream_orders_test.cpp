// All orders of streams: how many there are where they can be counted, the reduced search against the whole one, and against the executor.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/search/programs.h"

namespace gradledger::testing {
namespace {

using search::StreamAgreement;
using search::StreamOrders;

Slice declared(ProgramWriter& w, const char* name, std::uint64_t numel = 4) { return w.whole(w.declare(name, Dtype::float32, numel)); }

// k operations on each of two streams, which touch memory of their own.
Body two_streams(std::uint32_t k, bool same_memory = false) {
  return [=](std::uint32_t, ProgramWriter& w) {
    const Slice a = declared(w, "a"), b = declared(w, "b");
    for (std::uint32_t i = 0; i < k; ++i) {
      w.fill(a, i + 1.0);
      OnStream other(w, Stream::copy);
      w.fill(same_memory ? a : b, i + 101.0);
    }
  };
}

TEST(stream_orders, of_two_independent_streams_are_a_grid_of_states_and_one_order_is_enough) {
  for (const std::uint32_t k : {1u, 3u, 6u}) {
    StreamProgram program(1, two_streams(k));
    const StreamOrders all = program.explore(false);
    EXPECT_TRUE(all.complete);
    EXPECT_EQ(all.states, 2 + 2 * (k + 1) * (k + 1)) << "the host ends two events first, and the last one at any point of the grid";
    EXPECT_EQ(all.outcomes, 1u);
    const StreamOrders reduced = program.explore();
    EXPECT_TRUE(reduced.complete);
    EXPECT_EQ(reduced.states, 1u);
    EXPECT_EQ(reduced.transitions, 0u);
    EXPECT_EQ(reduced.depth, all.depth);
    EXPECT_EQ(reduced.agreement, StreamAgreement::agree);
  }
}

TEST(stream_orders, that_write_the_same_memory_differ_in_who_was_last) {
  for (const bool reduce : {false, true}) {
    StreamProgram program(1, two_streams(3, true));
    const StreamOrders orders = program.explore(reduce);
    EXPECT_TRUE(orders.complete);
    EXPECT_EQ(orders.outcomes, 2u);
    EXPECT_EQ(orders.agreement, StreamAgreement::agree) << "several kinds of race, one difference";
    EXPECT_FALSE(orders.races.empty());
  }
}

// The bucket is filled, reduced on another stream, and filled again, with or without a wait for the reduction.
Body refilled(bool waits, bool in_place = false, std::uint32_t racing_ranks = 2) {
  return [=](std::uint32_t rank, ProgramWriter& w) {
    const Slice bucket = declared(w, "bucket"), result = declared(w, "result");
    w.fill(bucket, rank + 1.0);
    const std::uint32_t filled = w.record();
    std::uint32_t reduced = 0;
    {
      OnStream communication(w, Stream::communication);
      w.wait(filled);
      w.collective({.input = bucket, .output = in_place ? bucket : result});
      reduced = w.record();
    }
    if (waits || rank >= racing_ranks) w.wait(reduced);
    w.fill(bucket, 100.0);
  };
}

// What the first element of a rank's buffer holds in the outcomes.
std::set<float> values_of(const StreamProgram& program, const StreamOrders& orders, std::size_t rank, std::size_t buffer) {
  std::set<float> values;
  for (const search::StreamWitness& witness : orders.witnesses) {
    float value = 0;
    std::memcpy(&value, program.end_of(witness).memory[rank][buffer].data(), sizeof value);
    values.insert(value);
  }
  return values;
}

TEST(stream_orders, show_a_missing_wait_in_the_values_and_one_outcome_where_it_is_not_missing) {
  StreamProgram wrong(2, refilled(false));
  const StreamOrders orders = wrong.explore();
  EXPECT_TRUE(orders.complete);
  EXPECT_EQ(orders.outcomes, 4u) << "either rank's refill before or after its bucket is read";
  EXPECT_EQ(values_of(wrong, orders, 0, 1), (std::set<float>{3.0f, 101.0f, 102.0f, 200.0f}));
  EXPECT_EQ(orders.agreement, StreamAgreement::agree);
  StreamProgram right(2, refilled(true));
  const StreamOrders one = right.explore();
  EXPECT_TRUE(one.complete);
  EXPECT_EQ(one.outcomes, 1u);
  EXPECT_EQ(values_of(right, one, 0, 1), (std::set<float>{3.0f}));
  EXPECT_TRUE(one.races.empty());
  EXPECT_EQ(one.agreement, StreamAgreement::agree);
}

TEST(stream_orders, let_other_streams_run_between_the_read_of_a_collective_and_its_write) {
  StreamProgram program(2, refilled(false, true, 1));
  const StreamOrders orders = program.explore();
  EXPECT_EQ(orders.outcomes, 3u);
  EXPECT_EQ(values_of(program, orders, 0, 0), (std::set<float>{102.0f, 3.0f, 100.0f})) << "before the read, in between and lost, after the write";
}

TEST(stream_orders, have_witnesses_that_lead_to_their_outcomes) {
  StreamProgram program(2, refilled(false, true));
  for (const bool reduce : {false, true}) {
    const StreamOrders orders = program.explore(reduce);
    ASSERT_EQ(orders.witnesses.size(), orders.outcomes);
    for (const search::StreamWitness& witness : orders.witnesses) {
      EXPECT_EQ(witness.decisions.size(), orders.depth);
      EXPECT_EQ(program.end_of(witness).outcome, witness.outcome);
    }
    std::vector<search::StreamDecision> cut = orders.witnesses[0].decisions;
    cut.pop_back();
    EXPECT_FALSE(search::replay_streams(program.scenario, program.timeline, program.options, cut)) << "not complete";
    cut.assign(1, {0, Stream::communication});
    EXPECT_FALSE(search::replay_streams(program.scenario, program.timeline, program.options, cut)) << "its event is not recorded yet";
  }
}

TEST(stream_orders, are_complete_only_where_no_state_was_left_out) {
  StreamProgram program(2, [](std::uint32_t, ProgramWriter& w) {
    const Slice a = declared(w, "a");
    for (int i = 0; i < 3; ++i) {
      w.fill(a.part(0, 2), i + 1.0);
      w.multiply(a, 3.0);
      OnStream other(w, Stream::copy);
      w.fill(a.part(1, 2), i + 101.0);
      w.accumulate(a.part(0, 1), a.part(2, 1));
    }
  });
  const StreamOrders whole = program.explore();
  EXPECT_TRUE(whole.complete && whole.every_choice);
  EXPECT_EQ(whole.left_out, 0u);
  program.options.states_max = whole.states;
  EXPECT_TRUE(program.explore().complete) << "the limit is no less than what is needed";

  program.options.states_max = whole.states - 1;
  const StreamOrders some = program.explore();
  EXPECT_FALSE(some.complete);
  EXPECT_TRUE(some.every_choice);
  EXPECT_GT(some.left_out, 0u);
  EXPECT_GT(some.outcomes, 1u);
  EXPECT_LT(some.outcomes, whole.outcomes);
  EXPECT_EQ(some.depth, whole.depth);

  program.options.variants_max = 0;
  program.options.states_max = 20;
  const StreamOrders few = program.explore();
  EXPECT_FALSE(few.complete || few.every_choice);
  EXPECT_EQ(few.states, 20u);
  EXPECT_EQ(few.depth, whole.depth) << "some orders are followed to their end";
  EXPECT_EQ(few.agreement, few.outcomes > 1 ? StreamAgreement::agree : StreamAgreement::unknown);
}

TEST(stream_orders, that_end_in_a_deadlock_do_so_all_of_them) {
  StreamProgram program(2, [](std::uint32_t rank, ProgramWriter& w) {
    const Slice a = declared(w, "a");
    w.fill(a, 1.0);
    if (rank == 0) w.collective({.input = a, .output = a});
    w.fill(a, 2.0);
  });
  for (const bool reduce : {false, true}) {
    const StreamOrders orders = program.explore(reduce);
    EXPECT_TRUE(orders.deadlock);
    EXPECT_TRUE(orders.complete);
    EXPECT_EQ(orders.outcomes, 0u);
    EXPECT_EQ(orders.agreement, StreamAgreement::unknown);
  }
}

TEST(stream_orders, are_not_searched_where_ranks_meet_with_different_calls) {
  StreamProgram program(2, [](std::uint32_t rank, ProgramWriter& w) {
    const Slice a = declared(w, "a");
    w.collective({.input = a.part(0, rank + 1), .output = a.part(0, rank + 1)});
  });
  const StreamOrders orders = program.explore();
  EXPECT_TRUE(orders.mismatch);
  EXPECT_FALSE(orders.complete);
  EXPECT_EQ(orders.states, 0u);
}

TEST(stream_orders, are_not_ordered_by_a_snapshot) {
  StreamProgram program(1, [](std::uint32_t, ProgramWriter& w) {
    const Slice a = declared(w, "a");
    w.fill(a, 1.0);
    w.synchronize(true);
    OnStream copy(w, Stream::copy);
    w.multiply(a, 2.0);
  });
  EXPECT_EQ(program.explore().outcomes, 2u);
}

TEST(stream_orders, see_a_value_that_is_reported_though_nothing_keeps_it) {
  StreamProgram program(1, [](std::uint32_t, ProgramWriter& w) {
    const Slice a = declared(w, "a");
    w.fill(a, 1.0);
    {
      OnStream copy(w, Stream::copy);
      w.report(StepFact::loss_scale, a.part(0, 1), 1.0);
    }
    w.fill(a, 2.0);
  });
  const StreamOrders orders = program.explore();
  EXPECT_EQ(orders.outcomes, 3u) << "either fill, or the poison before them";
  EXPECT_EQ(orders.outcomes_in_values, 3u);
}

// A race whose orders leave the same is told from one that shows, and not hidden.
TEST(stream_orders, disagree_with_a_race_that_makes_no_difference) {
  StreamProgram program(1, [](std::uint32_t, ProgramWriter& w) {
    const Slice a = declared(w, "a");
    w.fill(a, 1.0);
    OnStream copy(w, Stream::copy);
    w.fill(a, 1.0);
  });
  const StreamOrders orders = program.explore();
  EXPECT_TRUE(orders.complete);
  EXPECT_EQ(orders.outcomes, 1u);
  EXPECT_EQ(orders.agreement, StreamAgreement::race_without_difference);
}

// ---- drawn programs ---------------------------------------------------------------------------------------------------------------------

// The verdicts that the drawn programs got. hidden: a race that no order shows, as where both sides multiply, or a copy is onto itself.
struct Tally {
  std::size_t one_outcome = 0, several = 0, hidden = 0;
};

void hold_against_each_other(std::uint64_t seed, std::uint32_t world, std::uint32_t operations, Tally& tally) {
  StreamProgram program(world, DrawnProgram(seed, world, operations));
  const StreamOrders all = program.explore(false), reduced = program.explore(true);
  ASSERT_TRUE(all.complete && reduced.complete) << seed;
  ASSERT_EQ(all.mismatch, reduced.mismatch);
  EXPECT_LE(reduced.states, all.states);
  EXPECT_EQ(memory_outcomes(reduced), memory_outcomes(all)) << seed;
  EXPECT_EQ(all.deadlock, reduced.deadlock) << seed;
  if (all.deadlock) return;
  EXPECT_NE(reduced.agreement, StreamAgreement::difference_without_race) << seed;
  if (reduced.agreement == StreamAgreement::race_without_difference) ++tally.hidden;
  else ++(reduced.outcomes == 1 ? tally.one_outcome : tally.several);

  if (reduced.outcomes > 64) return;
  std::set<Contents> contents;
  for (const search::StreamWitness& witness : reduced.witnesses) contents.insert(program.end_of(witness).memory);
  for (std::uint64_t schedule = 0; schedule < 6; ++schedule) {
    Schedule chosen;
    chosen.seed = schedule;
    if (schedule == 0) chosen.policy = Schedule::Policy::in_order;
    const auto [left, completed] = executed(program.scenario, program.timeline, program.options.factory, chosen);
    if (completed) {
      EXPECT_TRUE(contents.contains(left)) << "program " << seed << ", schedule " << schedule;
    }
  }
}

TEST(drawn_programs, of_one_rank_have_the_outcomes_of_every_order_and_the_executors_among_them) {
  Tally tally;
  for (std::uint64_t seed = 0; seed < 150; ++seed) hold_against_each_other(seed, 1, 11, tally);
  EXPECT_GT(tally.one_outcome, 10u);
  EXPECT_GT(tally.several, 10u);
  EXPECT_LT(10 * tally.hidden, tally.several + tally.one_outcome);
}

TEST(drawn_programs, of_several_ranks_have_the_outcomes_of_every_order_and_the_executors_among_them) {
  Tally tally;
  for (std::uint64_t seed = 1000; seed < 1040; ++seed) hold_against_each_other(seed, 2, 5, tally);
  for (std::uint64_t seed = 2000; seed < 2020; ++seed) hold_against_each_other(seed, 3, 3, tally);
  EXPECT_GT(tally.one_outcome, 5u);
  EXPECT_GT(tally.several, 10u);
  EXPECT_LT(10 * tally.hidden, tally.several + tally.one_outcome);
}

}  // namespace
}  // namespace gradledger::testing
