// Every class of finding, from a producer that lies in just that way; and clean runs that stay clean.
#include <gtest/gtest.h>

#include "sim/frameworks/deepspeed/settings.h"
#include "tests/support/tampering.h"

namespace gradledger::testing {
namespace {

using Set = std::set<std::string>;

// What is an average already is summed over all ranks again, which takes bits that a single reduction does not.
TEST(oracle, finds_nothing_where_a_window_is_reduced_several_times) {
  for (const Dtype dtype : {Dtype::float32, Dtype::bfloat16})
    for (const std::uint32_t world : {2u, 8u, 16u})
      for (const std::uint32_t times : {2u, 3u, 7u}) {
        Scenario s = base_scenario(world, {8}, dtype);
        s.script = {boundary(true), backward(times), step()};
        const ref::Verdict verdict = judge(s);
        EXPECT_EQ(classes(verdict), Set{}) << world << " ranks, " << times << " reductions: " << sentences(verdict);
        EXPECT_GT(verdict.ledger.elements, 0u);
      }
}

TEST(oracle, finds_nothing_where_nobody_lies) {
  for (std::uint32_t world : {1u, 2u, 3u, 4u}) {
    const ref::Verdict verdict = judge_tampered(honest(Dtype::bfloat16, world), [](const Snapshot&) {});
    EXPECT_EQ(classes(verdict), Set{}) << sentences(verdict);
    EXPECT_GT(verdict.ledger.elements, 0u);
    EXPECT_GT(verdict.values.elements, 0u);
    EXPECT_GT(verdict.parameters.elements, 0u);
    EXPECT_EQ(verdict.values.inconclusive, 0u);
  }
}

// Values alone are off, so that the exception is the only other finding of the window.
TEST(oracle, an_exception_explains_values_behind_it_and_none_before_it) {
  Scenario s = honest();
  ScriptItem raises = item_of(ScriptKind::raise);
  s.script = {backward(), raises, backward(), step()};
  s.after_error = AfterError::go_on;
  for (const std::uint32_t event : {0U, 2U}) {
    const ref::Verdict verdict = judge_tampered(s, [&](const Snapshot& snapshot) {
      if (snapshot.event != event || snapshot.linear || !snapshot.at_end || snapshot.role == Role::scratch) return;
      for (double& x : *snapshot.values) x *= 1.5;
    });
    EXPECT_TRUE(classes(verdict).contains("engine-error")) << sentences(verdict);
    EXPECT_EQ(classes(verdict).contains("rounding-excess"), event == 0) << event << ": " << sentences(verdict);
  }
}

TEST(oracle, a_factor_of_two_on_the_applied_gradient_is_a_wrong_scale) {
  const ref::Verdict verdict = judge_tampered(honest(), [](const Snapshot& s) {
    if (s.role == Role::applied_gradient && s.rank == 1 && s.step == 1)
      for (double& x : *s.values) x *= 2;
  });
  ASSERT_TRUE(classes(verdict).contains("wrong-scale")) << sentences(verdict);
  const auto f = std::find_if(verdict.findings.begin(), verdict.findings.end(), [](const ref::Finding& x) { return x.finding == ref::FindingClass::wrong_scale; });
  EXPECT_EQ(f->step, 1u);
  EXPECT_EQ(f->rank, 1u);
  EXPECT_EQ(f->role, Role::applied_gradient);
  EXPECT_EQ(f->contributions.size(), 8u);
  for (const ref::Miscounted& m : f->contributions) {
    EXPECT_EQ(m.expected, 0.125);
    EXPECT_EQ(m.observed, 0.25);
  }
  ASSERT_TRUE(f->worst.has_value());
  EXPECT_GT(f->worst->error(), f->worst->bound);
}

TEST(oracle, elements_shifted_by_one_are_a_misplaced_shard) {
  const ref::Verdict verdict = judge_tampered(honest(), [](const Snapshot& s) {
    if (s.buffer == "averaged_gradients[0]" && s.rank == 0 && s.role == Role::reduced_accumulator) std::rotate(s.values->begin(), s.values->begin() + 1, s.values->end());
  });
  EXPECT_EQ(classes(verdict), Set{"misplaced-shard"}) << sentences(verdict);
}

TEST(oracle, a_lone_wrong_element_is_found_and_placed) {
  const ref::Verdict verdict = judge_tampered(honest(), [](const Snapshot& s) {
    if (s.role == Role::applied_gradient && s.rank == 0 && s.step == 0) (*s.values)[17] = 0;
  });
  ASSERT_TRUE(classes(verdict).contains("discarded-gradient")) << sentences(verdict);
  const ref::Finding& f = verdict.findings.front();
  ASSERT_EQ(f.elements.size(), 1u);
  EXPECT_EQ(f.elements.front(), (ref::ElementRange{0, 17, 18}));
}

TEST(oracle, one_flipped_bit_in_one_ranks_weights_is_a_rank_divergence_or_a_wrong_update) {
  const ref::Verdict verdict = judge_tampered(honest(Dtype::float32), [](const Snapshot& s) {
    if (s.role != Role::parameter || s.rank != 1 || s.buffer != "w1" || s.linear) return;
    float stored = static_cast<float>((*s.values)[3]);
    std::uint32_t bits;
    std::memcpy(&bits, &stored, 4);
    bits ^= 1;
    std::memcpy(&stored, &bits, 4);
    (*s.values)[3] = stored;
  });
  EXPECT_TRUE(classes(verdict).contains("rank-divergence")) << sentences(verdict);
}

TEST(oracle, values_beyond_their_bound_are_a_rounding_excess_when_the_ledger_balances) {
  const ref::Verdict verdict = judge_tampered(honest(Dtype::float32), [](const Snapshot& s) {
    if (s.role == Role::applied_gradient && !s.linear)
      for (double& x : *s.values) x *= 1.0 + std::ldexp(1.0, -10);
  });
  EXPECT_TRUE(classes(verdict).contains("rounding-excess")) << sentences(verdict);
  EXPECT_FALSE(classes(verdict).contains("wrong-scale"));
}

TEST(oracle, the_gradient_of_the_window_before_is_stale) {
  std::map<std::pair<std::uint32_t, bool>, std::vector<double>> before;
  const ref::Verdict verdict = judge_tampered(honest(), [&](const Snapshot& s) {
    if (s.role != Role::applied_gradient) return;
    const std::vector<double> own = *s.values;
    if (s.step == 1) {
      for (std::size_t i = 0; i < own.size(); ++i) (*s.values)[i] += before[{s.rank, s.linear}][i];
    }
    before[{s.rank, s.linear}] = own;
  });
  ASSERT_TRUE(classes(verdict).contains("stale-gradient")) << sentences(verdict);
  for (const ref::Finding& f : verdict.findings) {
    if (f.finding != ref::FindingClass::stale_gradient) continue;
    for (const ref::Miscounted& m : f.contributions) EXPECT_EQ(m.contribution.step, 0u);
  }
}

TEST(oracle, a_gradient_that_nobody_applies_is_discarded) {
  Scenario s = honest();
  deepspeed_config(s).gradient_accumulation_steps = 2;
  s.contract.window = Window::every_step_call;
  s.script = {backward(), step()};  // the counter says: not yet
  const ref::Verdict verdict = judge(s);
  // Nobody applies it, and it lies on into the window that follows.
  EXPECT_EQ(classes(verdict), (Set{"discarded-gradient", "stale-gradient"})) << sentences(verdict);
  s.contract.window = Window::since_last_step;
  EXPECT_EQ(classes(judge(s)), Set{}) << "as documented";
}

TEST(oracle, a_script_that_only_some_ranks_run_is_a_deadlock) {
  Scenario s = honest();
  deepspeed_config(s).gradient_accumulation_steps = 1;
  ScriptItem only_rank_0 = backward();
  only_rank_0.ranks = {0};
  s.script = {only_rank_0};
  const ref::Verdict verdict = judge(s);
  EXPECT_EQ(classes(verdict), Set{"deadlock"}) << sentences(verdict);
  // The rank that has no gradient raises besides.
  s.script = {only_rank_0, step()};
  EXPECT_EQ(classes(judge(s)), (Set{"deadlock", "engine-error"}));
}

TEST(oracle, no_sync_under_stage_2_is_the_frameworks_own_error) {
  Scenario s = honest();
  deepspeed_config(s).zero.stage = 2;
  ScriptItem block = event(ScriptKind::no_sync);
  block.items = {backward()};
  s.script = {block, backward(), step()};
  const ref::Verdict verdict = judge(s);
  EXPECT_EQ(classes(verdict), Set{"engine-error"}) << sentences(verdict);
}

// ---- the contract ---------------------------------------------------------------------------------------------------------------------

TEST(contract, a_divisor_that_the_engine_does_not_apply_is_a_wrong_scale) {
  Scenario s = honest();
  s.contract.divide(8);
  EXPECT_EQ(classes(judge(s)), Set{"wrong-scale"});
}

TEST(contract, a_sum_over_ranks_must_be_what_the_user_wants) {
  Scenario s = honest();
  deepspeed_config(s).gradient_allreduce_op = AllreduceOp::sum;
  EXPECT_EQ(classes(judge(s)), Set{"wrong-scale"});
  s.contract.average_over = "none";
  EXPECT_EQ(classes(judge(s)), Set{});
}

TEST(contract, a_zero_grad_that_leaves_reduced_gradients_alone_is_stale_unless_the_user_keeps_them) {
  Scenario s = base_scenario(2, {30, 21, 13}, Dtype::float32);
  deepspeed_config(s).zero.stage = 2;
  s.script = {boundary(false), backward(), event(ScriptKind::engine_zero_grad), backward(), boundary(true), backward(), step()};
  EXPECT_EQ(classes(judge(s)), Set{"stale-gradient"}) << sentences(judge(s));
  s.contract.zero_grad_discards = false;
  EXPECT_EQ(classes(judge(s)), Set{});
  s.contract.zero_grad_discards = true;
  deepspeed_config(s).zero.stage = 0;
  EXPECT_EQ(classes(judge(s)), Set{}) << "stage 0 drops what autograd accumulated";
}

TEST(contract, parameters_that_a_micro_batch_does_not_use_owe_nothing) {
  Scenario s = honest(Dtype::float32);
  s.parameters[1].used_by = *Predicate::parse("micro_batch != 1", "");
  s.parameters[2].used_by = *Predicate::parse("step == 0 and micro_batch == 0", "");
  for (std::uint32_t number : {0u, 1u, 2u}) {
    deepspeed_config(s).zero.stage = number;
    EXPECT_EQ(classes(judge(s)), Set{}) << "stage " << number << "\n" << sentences(judge(s));
  }
  deepspeed_config(s).zero.stage = 3;  // live-5b: a parameter unused in a window keeps its partition of the window before
  EXPECT_EQ(classes(judge(s)), Set{"stale-gradient"}) << sentences(judge(s));
}

// ---- optimizers -----------------------------------------------------------------------------------------------------------------------

TEST(updates, sgd_adam_and_adamw_stay_within_their_bounds_on_every_engine) {
  for (OptimizerType type : {OptimizerType::sgd, OptimizerType::adam, OptimizerType::adamw}) {
    for (std::uint32_t number : {0u, 1u, 2u, 3u}) {
      for (bool offload : {false, true}) {
        if (offload && number == 0) continue;
        Scenario s = honest();
        s.engine.optimizer = {type, 0.25, 0.9, 0.999, 1e-8, 0.01};  // no tolerance: epsilon
        deepspeed_config(s).zero.stage = number;
        s.engine.as_of.switches["master_first_step"] = "not_taken";  // live-34: the step with zeros is one that no script asks for
        if (offload) deepspeed_config(s).zero.offload_optimizer = OffloadDevice::cpu;
        s.script = {repeat(3, managed(4))};
        const ref::Verdict verdict = judge(s);
        EXPECT_EQ(classes(verdict), Set{}) << "stage " << number << sentences(verdict);
        EXPECT_GT(verdict.parameters.elements, 0u);
      }
    }
  }
}

TEST(updates, a_step_with_the_wrong_sign_is_found) {
  Scenario s = honest(Dtype::float32);
  s.engine.optimizer.learning_rate = 0.5;
  const ref::Verdict verdict = judge_tampered(s, [](const Snapshot& x) {
    if (x.role == Role::parameter && !x.linear)
      for (double& value : *x.values) value = -value;
  });
  EXPECT_TRUE(classes(verdict).contains("rounding-excess")) << sentences(verdict);
}

TEST(clipping, is_judged_in_the_value_pass_and_is_right_in_every_engine) {
  for (std::uint32_t number : {0u, 1u, 2u, 3u}) {
    for (Dtype dtype : {Dtype::float32, Dtype::bfloat16}) {
      Scenario s = honest(dtype);
      deepspeed_config(s).zero.stage = number;
      deepspeed_config(s).gradient_clipping = 0.5;
      const ref::Verdict verdict = judge(s);
      EXPECT_EQ(classes(verdict), Set{}) << "stage " << number << sentences(verdict);
    }
  }
}

TEST(clipping, that_does_nothing_is_a_wrong_norm) {
  Scenario s = honest(Dtype::float32);
  deepspeed_config(s).gradient_clipping = 0.5;
  Scenario without = s;
  deepspeed_config(without).gradient_clipping = 0.0;
  // The producer runs without clipping; the oracle knows of it.
  const auto timeline = make_timeline(s);
  HostExecutor producer(without, *timeline);
  const ref::Verdict verdict = ref::judge(s, *timeline, producer, {});
  EXPECT_EQ(classes(verdict), Set{"wrong-norm"}) << sentences(verdict);
}

// ---- gradients that users set ----------------------------------------------------------------------------------------------------------

TEST(set_gradients, are_judged_right_where_engines_do_what_users_ask) {
  for (const Dtype dtype : {Dtype::float32, Dtype::bfloat16})
    for (const std::uint32_t steps : {2u, 3u})
      for (const double factor : {0.25, 3.0, 0.75})
        for (std::uint32_t stage = 0; stage <= 3; ++stage) {
          Scenario s = base_scenario(2, {32, 20}, dtype);
          deepspeed_config(s).zero.stage = stage;
          deepspeed_config(s).gradient_accumulation_steps = steps;
          deepspeed_config(s).gradient_clipping = 0.5;
          s.script = {repeat(2, {repeat(steps - 1, {backward(), step()}), backward(), set_of("w0", factor), step()})};
          EXPECT_EQ(sentences(judge(s)), "") << "stage " << stage << ", " << steps << " steps, times " << factor;
        }
}

// Neither the applied gradient nor the norm of a step may have been left as it was.
TEST(set_gradients, that_change_nothing_are_wrong_scales) {
  Scenario s = base_scenario(2, {32, 20}, Dtype::bfloat16);
  deepspeed_config(s).zero.stage = 1;
  deepspeed_config(s).grad_accum_dtype = Dtype::float32;
  s.script = {backward(), set_of("w1", 0.5), step()};
  const ref::Verdict verdict = judge(s);
  ASSERT_EQ(classes(verdict), std::set<std::string>{"wrong-scale"});
  for (const ref::Finding& finding : verdict.findings)
    for (const ref::ElementRange& elements : finding.elements) EXPECT_EQ(elements.parameter, 1u) << "w0 was not touched";
  for (const ref::Miscounted& m : verdict.findings.front().contributions) EXPECT_EQ(m.observed, 2 * m.expected);
}

TEST(set_gradients, of_a_rank_that_kept_its_micro_batch_to_itself_are_still_leaks) {
  Scenario s = base_scenario(2, {32, 20}, Dtype::bfloat16);
  deepspeed_config(s).zero.stage = 1;
  deepspeed_config(s).grad_accum_dtype = Dtype::float32;
  s.engine.as_of = {"before #7985", {{"bf16_set_gradient", "accumulator"}}};
  s.script = {backward(), set_of("w0", 0.5), set_of("w1", 0.5), step()};
  EXPECT_EQ(classes(judge(s)), std::set<std::string>{"boundary-leak"});
}

}  // namespace
}  // namespace gradledger::testing
