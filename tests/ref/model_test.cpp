// What must be true, by hand: two ranks, gradients 1 + backward + 10 rank + 100 element.
#include <gtest/gtest.h>

#include "ref/model.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "tests/support/scripted_engine.h"

namespace gradledger::testing {
namespace {

using Values = std::vector<double>;

struct ByHand {
  Scenario scenario;
  Timeline timeline;
  CountingSource source;
  std::unique_ptr<ref::Model> model;

  explicit ByHand(Scenario s, ref::Model::Mode mode = ref::Model::Mode::exact) : scenario(std::move(s)), timeline(*make_timeline(scenario)) {
    model = std::make_unique<ref::Model>(scenario, timeline, source, mode);
  }
  Values local(std::uint32_t rank, std::uint32_t event, bool at_end = true) { return model->local(rank, event, at_end).value; }
  Values reduced(std::uint32_t event, bool at_end = true) { return model->reduced(event, at_end).value; }
};

// Two micro-batches a window, averaged over 2 ranks and divided by 2.
Scenario two_windows() {
  Scenario s = base_scenario(2, {2}, Dtype::float32);
  s.contract.divide(2);
  s.script = {repeat(2, {backward(2), step()})};
  return s;
}

TEST(model, sums_a_ranks_own_micro_batches_over_the_divisor) {
  ByHand by_hand(two_windows());
  EXPECT_EQ(by_hand.local(0, 0), (Values{1 / 2.0, 101 / 2.0}));
  EXPECT_EQ(by_hand.local(1, 0), (Values{11 / 2.0, 111 / 2.0}));
  EXPECT_EQ(by_hand.local(1, 1), (Values{(11 + 12) / 2.0, (111 + 112) / 2.0}));
}

TEST(model, averages_over_the_world) {
  ByHand by_hand(two_windows());
  EXPECT_EQ(by_hand.reduced(1), (Values{(1 + 2 + 11 + 12) / 4.0, (101 + 102 + 111 + 112) / 4.0}));
}

TEST(model, answers_for_the_old_window_inside_a_step_and_for_the_new_one_after_it) {
  ByHand by_hand(two_windows());
  const Values window{(1 + 2 + 11 + 12) / 4.0, (101 + 102 + 111 + 112) / 4.0};
  EXPECT_EQ(by_hand.reduced(2, false), window);
  EXPECT_EQ(by_hand.reduced(2, true), (Values{0, 0}));
  EXPECT_EQ(by_hand.model->window(2, false), 0u);
  EXPECT_EQ(by_hand.model->window(2, true), 1u);
  EXPECT_EQ(by_hand.reduced(3), (Values{(3 + 13) / 4.0, (103 + 113) / 4.0}));
}

// Expert 1 lives on rank 1 of 2 alone, and its gradient has the tokens of both.
TEST(model, divides_an_expert_by_all_ranks_and_sums_over_those_that_hold_it) {
  Scenario s = base_scenario(2, {1, 1}, Dtype::float32);
  s.contract.divide(1);
  s.script = {backward(1)};
  s.parameters[1].expert = 1;
  s.engine.expert_parallel_size = 2;
  EXPECT_EQ(ByHand(s).reduced(0), (Values{(1 + 11) / 2.0, 11 / 2.0}));
}

TEST(model, averages_within_a_pipeline_stage_and_counts_a_sequence_once) {
  Scenario s = base_scenario(4, {1, 1}, Dtype::float32);
  s.contract.divide(1);
  s.script = {backward(1)};
  s.parameters[1].pipeline_stage = 1;
  s.engine.pipeline_stages = 2;
  EXPECT_EQ(ByHand(s).reduced(0), (Values{(1 + 11) / 2.0, (21 + 31) / 2.0}));
  s.engine.sequence_parallel_size = 2;
  EXPECT_EQ(ByHand(s).reduced(0), (Values{1 + 11, 21 + 31}));
}

TEST(model, has_nothing_for_frozen_parameters) {
  Scenario s = base_scenario(2, {2, 2}, Dtype::float32);
  s.contract.divide(2);
  s.script = {backward(1)};
  s.parameters[1].trainable = false;
  const Values reduced = ByHand(s).reduced(0);
  EXPECT_EQ((Values{reduced[2], reduced[3]}), (Values{0, 0}));
  EXPECT_NE(reduced[1], 0);
}

TEST(model, sums_over_ranks_where_the_contract_does_not_average) {
  Scenario s = two_windows();
  s.contract.average_over = "none";
  EXPECT_EQ(ByHand(s).reduced(1), (Values{(1 + 2 + 11 + 12) / 2.0, (101 + 102 + 111 + 112) / 2.0}));
}

TEST(model, divides_by_what_the_contract_says) {
  Scenario s = two_windows();
  s.contract.divide(4);
  EXPECT_EQ(ByHand(s).reduced(1), (Values{(1 + 2 + 11 + 12) / 8.0, (101 + 102 + 111 + 112) / 8.0}));
}

TEST(model, leaves_out_what_a_zero_grad_dropped_from_then_on) {
  Scenario s = two_windows();
  s.script = {backward(), event(ScriptKind::engine_zero_grad), backward(), step()};
  ByHand by_hand(s);
  EXPECT_EQ(by_hand.local(0, 0), (Values{1 / 2.0, 101 / 2.0}));
  EXPECT_EQ(by_hand.local(0, 1), (Values{0, 0}));
  EXPECT_EQ(by_hand.local(0, 2), (Values{2 / 2.0, 102 / 2.0}));
  s.contract.zero_grad_discards = false;
  EXPECT_EQ(ByHand(s).local(0, 2), (Values{(1 + 2) / 2.0, (101 + 102) / 2.0}));
}

TEST(model, multiplies_what_the_window_has_of_a_parameter_so_far) {
  Scenario s = base_scenario(2, {1, 1}, Dtype::float32);
  s.script = {backward(), set_of("w1", 3), backward(), set_of("w1", 0.5), step(), backward()};
  deepspeed_config(s).gradient_accumulation_steps = 1;
  s.contract.divide(1);
  ByHand by_hand(s);
  EXPECT_EQ(by_hand.local(0, 1), (Values{1, 3 * 1}));
  EXPECT_EQ(by_hand.reduced(1), (Values{(1 + 11) / 2.0, 3 * (1 + 11) / 2.0}));
  EXPECT_EQ(by_hand.local(1, 2), (Values{11 + 12, 3 * 11 + 12})) << "a later micro-batch is not multiplied";
  EXPECT_EQ(by_hand.reduced(3), (Values{(1 + 2 + 11 + 12) / 2.0, (3 * 1 + 2 + 3 * 11 + 12) / 4.0}));
  EXPECT_EQ(by_hand.reduced(5), (Values{(3 + 13) / 2.0, (3 + 13) / 2.0})) << "nor is the next window";
}

TEST(model, multiplies_again_what_a_zero_grad_left) {
  Scenario s = base_scenario(2, {1, 1}, Dtype::float32);
  s.contract.divide(1);
  ScriptItem zero = event(ScriptKind::engine_zero_grad);
  zero.ranks = {1};
  s.script = {backward(), set_of("w0", 4), zero, backward()};
  ByHand by_hand(s);
  EXPECT_EQ(by_hand.local(0, 3), (Values{4 * 1 + 2, 1 + 2}));
  EXPECT_EQ(by_hand.local(1, 3), (Values{12, 12}));
}

TEST(model, bounds_a_product_by_the_old_bound_times_the_factor_and_one_rounding) {
  Scenario s = base_scenario(2, {1, 1}, Dtype::bfloat16);
  s.script = {backward(3), set_of("w0", 2), set_of("w1", 3)};
  ByHand by_hand(s, ref::Model::Mode::bounded);
  const ref::Field before = by_hand.model->reduced(2, true);
  const ref::Field after = by_hand.model->reduced(4, true);
  const double u = 1.0 / 256;
  EXPECT_GE(after.error[0], 2 * before.error[0]);
  EXPECT_LT(after.error[0], 2 * before.error[0] + u * std::abs(after.value[0])) << "a power of two rounds nothing";
  EXPECT_GE(after.error[1], 3 * before.error[1] + u * std::abs(after.value[1]));
}

// An average over tokens is a product with a factor that is rounded itself; a loss over the tokens of its micro-batch, of three such.
TEST(model, bounds_a_division_by_tokens_by_the_roundings_of_its_factors) {
  const auto divided = [](std::optional<TokenDivision> tokens) {
    auto by_hand = std::make_unique<ByHand>(two_windows());
    by_hand->timeline.contract.token_division = std::move(tokens);
    by_hand->model = std::make_unique<ref::Model>(by_hand->scenario, by_hand->timeline, by_hand->source, ref::Model::Mode::bounded);
    return by_hand;
  };
  const double u = std::ldexp(1.0, -24);
  const auto by_nothing = divided({}), by_those_of_a_window = divided(TokenDivision{.of_window = true}), by_those_of_a_micro_batch = divided(TokenDivision{});
  const ref::Field average = by_nothing->model->reduced(1, true), of_window = by_those_of_a_window->model->reduced(1, true);
  const ref::Field own = by_nothing->model->local(0, 1, true), of_micro_batch = by_those_of_a_micro_batch->model->local(0, 1, true);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_GE(of_window.error[i], average.error[i] + 2 * u * average.value[i]);
    EXPECT_GE(of_micro_batch.error[i], own.error[i] + 3 * u * own.value[i]);
  }
  EXPECT_EQ(by_those_of_a_window->model->local(0, 1, true).error, own.error) << "own sums are not divided";
}

TEST(model, leaves_out_parameters_that_a_micro_batch_does_not_use) {
  Scenario s = base_scenario(2, {1, 1}, Dtype::float32);
  s.parameters[1].used_by = *Predicate::parse("rank == 1 and micro_batch == 0", "");
  s.script = {backward(2), step()};
  EXPECT_EQ(ByHand(s).local(0, 1), (Values{1 + 2, 0}));
  EXPECT_EQ(ByHand(s).local(1, 1), (Values{11 + 12, 11}));
}

TEST(model, keeps_its_answers_until_they_are_forgotten) {
  ByHand by_hand(two_windows());
  const Values first = by_hand.reduced(0);
  by_hand.reduced(5);
  EXPECT_EQ(by_hand.reduced(0), first);
  by_hand.model->forget_before(3);
  EXPECT_EQ(by_hand.reduced(3), (Values{(3 + 13) / 4.0, (103 + 113) / 4.0}));
}

TEST(model, takes_the_norm_over_all_parameters_within_the_roundings_of_an_fp32_sum) {
  Scenario s = base_scenario(1, {1, 1}, Dtype::float32);
  s.script = {backward(), step()};
  ByHand by_hand(s, ref::Model::Mode::bounded);
  ref::Field field;
  field.value = {3, 4};
  const ref::Bounded norm = by_hand.model->norm(field);
  EXPECT_EQ(norm.value, 5.0);
  EXPECT_GE(norm.error, 4 * std::ldexp(5.0, -24));
}

TEST(model, bounds_nothing_in_exact_mode_and_every_rounded_element_in_bounded_mode) {
  ByHand exact(two_windows()), bounded(two_windows(), ref::Model::Mode::bounded);
  EXPECT_TRUE(exact.model->reduced(1, true).error.empty());
  for (double error : bounded.model->reduced(1, true).error) EXPECT_GT(error, 0.0);
  EXPECT_EQ(bounded.reduced(1), exact.reduced(1));
}

}  // namespace
}  // namespace gradledger::testing
