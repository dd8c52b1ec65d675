// What a snapshot owes, and when: decided from what a buffer is, the script and what was seen, never by the engine.
#include <gtest/gtest.h>

#include "ref/due.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

using ref::Due;
using ref::NotDue;

// One element of one parameter on rank 0.
struct Shown {
  std::uint32_t event;
  Role role;
  float value;
};

Due due_of(ref::DueTracker& tracker, const Shown& shown) {
  const ObservedPiece piece{0, 0, 1, Dtype::float32, reinterpret_cast<const std::byte*>(&shown.value)};
  const Due due = tracker.of({0, shown.event, true, "buffer", shown.role, 1.0, {&piece, 1}});
  tracker.event_done(0, shown.event);
  return due;
}

Timeline timeline_of(std::uint32_t stage, std::uint32_t steps, std::vector<ScriptItem> script) {
  Scenario s = base_scenario(1, {1}, Dtype::float32);
  deepspeed_config(s).zero.stage = stage;
  deepspeed_config(s).gradient_accumulation_steps = steps;
  s.script = std::move(script);
  return make_timeline(s).value();
}

TEST(a_reduced_buffer, is_judged_when_it_changes_and_once_the_window_has_reduced_something) {
  const Timeline timeline = timeline_of(2, 2, managed(2));  // backward, step, backward, step
  ref::DueTracker tracker(timeline);
  EXPECT_FALSE(due_of(tracker, {0, Role::reduced_accumulator, 1}).not_due);
  EXPECT_EQ(due_of(tracker, {1, Role::reduced_accumulator, 1}).not_due, NotDue::unchanged);
  EXPECT_FALSE(due_of(tracker, {2, Role::reduced_accumulator, 2}).not_due);
  EXPECT_EQ(due_of(tracker, {3, Role::reduced_accumulator, 3}).not_due, NotDue::left_over) << "the step has closed the window";
}

TEST(a_reduced_buffer, of_stage_1_owes_nothing_before_the_boundary) {
  const Timeline timeline = timeline_of(1, 2, managed(2));
  ref::DueTracker tracker(timeline);
  EXPECT_EQ(due_of(tracker, {0, Role::reduced_accumulator, 1}).not_due, NotDue::left_over);
  EXPECT_EQ(due_of(tracker, {1, Role::reduced_accumulator, 2}).not_due, NotDue::left_over);
  EXPECT_FALSE(due_of(tracker, {2, Role::reduced_accumulator, 3}).not_due);
}

TEST(a_master_gradient, owes_nothing_before_a_boundary_even_where_every_backward_reduces) {
  const Timeline timeline = timeline_of(2, 2, managed(2));
  ref::DueTracker tracker(timeline);
  EXPECT_EQ(due_of(tracker, {0, Role::master_gradient, 1}).not_due, NotDue::left_over);
  EXPECT_EQ(due_of(tracker, {1, Role::master_gradient, 1}).not_due, NotDue::left_over);
  EXPECT_FALSE(due_of(tracker, {2, Role::master_gradient, 2}).not_due);
}

TEST(a_local_sum, that_was_made_anew_after_a_reduction_owes_what_came_since) {
  ScriptItem block = event(ScriptKind::coalesce);
  block.items = {backward(2)};
  const Timeline timeline = timeline_of(2, 4, {backward(2), block});  // 0 and 1, enter 2, 3 and 4, exit 5
  ref::DueTracker tracker(timeline);
  EXPECT_EQ(due_of(tracker, {0, Role::local_accumulator, 1}).after, never) << "there since before the window's first reduction was over";
  tracker.event_done(0, 1);
  tracker.event_done(0, 2);
  EXPECT_EQ(due_of(tracker, {3, Role::local_accumulator, 1}).after, 1u);
  EXPECT_EQ(due_of(tracker, {4, Role::local_accumulator, 2}).after, 1u) << "it is the same one";
}

TEST(a_replicated_sum, and_the_applied_gradient_are_always_due_and_scratch_never) {
  const Timeline timeline = timeline_of(0, 1, {backward(), step()});
  ref::DueTracker tracker(timeline);
  for (const Role role : {Role::replicated_accumulator, Role::applied_gradient}) {
    EXPECT_FALSE(due_of(tracker, {0, role, 1}).not_due);
    EXPECT_FALSE(due_of(tracker, {1, role, 1}).not_due);
  }
  EXPECT_EQ(due_of(tracker, {0, Role::scratch, 1}).not_due, NotDue::scratch);
}

TEST(an_applied_gradient, of_zeros_owes_nothing_inside_a_backward_and_all_that_is_due_in_a_step) {
  const Timeline timeline = timeline_of(0, 1, {backward(), step()});
  ref::DueTracker tracker(timeline);
  const auto of_zeros = [&](std::uint32_t event, bool at_end, bool zeros) {
    return tracker.of(ref::Shown{0, event, at_end, "buffer", Role::applied_gradient, {}, {}, zeros}).not_due;
  };
  EXPECT_EQ(of_zeros(0, false, true), NotDue::zeros);
  EXPECT_FALSE(of_zeros(0, false, false)) << "the gradient itself, which the hook is given behind them";
  EXPECT_FALSE(of_zeros(1, false, true)) << "there is no other step of the window";
}

TEST(an_exception_of_the_user, puts_off_what_was_reduced_with_ranks_that_are_further_on) {
  ScriptItem raise = event(ScriptKind::raise);
  raise.caught = true;
  const Timeline timeline = timeline_of(2, 1, {backward(), raise});
  ref::DueTracker tracker(timeline);
  EXPECT_EQ(due_of(tracker, {1, Role::reduced_accumulator, 1}).not_due, NotDue::interrupted);
  EXPECT_FALSE(due_of(tracker, {1, Role::local_accumulator, 1}).not_due);
}

TEST(a_window, that_some_ranks_reduced_owes_nothing_but_what_is_applied) {
  Scenario s = base_scenario(2, {1}, Dtype::float32);
  deepspeed_config(s).zero.stage = 2;
  ScriptItem block = event(ScriptKind::no_sync);
  block.items = {backward()};
  block.ranks = {0};
  s.script = {block, backward(), step(), backward()};  // enter 0, 1, exit 2, 3, step 4, 5
  const Timeline timeline = make_timeline(s).value();
  ref::DueTracker tracker(timeline);
  EXPECT_EQ(due_of(tracker, {1, Role::reduced_accumulator, 1}).not_due, NotDue::apart);
  EXPECT_EQ(due_of(tracker, {3, Role::local_accumulator, 1}).not_due, NotDue::apart) << "nobody says what it holds";
  EXPECT_FALSE(due_of(tracker, {4, Role::applied_gradient, 1}).not_due);
  EXPECT_FALSE(due_of(tracker, {5, Role::reduced_accumulator, 2}).not_due);
}

// Of two micro-batches the second raises, and shows nothing. The sum is the one of before, and holds both.
TEST(a_local_buffer, goes_on_over_an_event_that_raised_and_showed_nothing) {
  const Timeline timeline = timeline_of(2, 1, {backward(), backward(), step()});
  for (const bool shown_before : {true, false})
    for (const bool raised : {true, false}) {
      ref::DueTracker tracker(timeline);
      if (shown_before) due_of(tracker, {0, Role::local_accumulator, 1});
      else tracker.event_done(0, 0);
      if (raised) tracker.raised(0, 1);
      tracker.event_done(0, 1);
      const std::uint32_t after = due_of(tracker, {2, Role::local_accumulator, 2}).after;
      EXPECT_EQ(after, !raised ? 1u : shown_before ? never : 0u) << shown_before << raised;
    }
}

}  // namespace
}  // namespace gradledger::testing
