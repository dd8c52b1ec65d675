// What the sums of few runs alone would name otherwise than many runs do: weights that 16 bits hide, answers by chance, elements that hold those of others.
#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>

#include "sim/load.h"
#include "tests/support/few_runs.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

using Set = std::set<std::string>;

Scenario scenario_in(const std::string& text) {
  const auto read = read_scenario(text, ".");
  EXPECT_TRUE(read.ok()) << (read.ok() ? "" : read.error().text());
  return read.value();
}

void expect_named(const Scenario& scenario, const Set& names) {
  const ref::Verdict many = judge(scenario), few = judged_in_few(scenario).verdict;
  EXPECT_EQ(classes(many), names) << sentences(many);
  EXPECT_EQ(classes(few), names) << sentences(few);
}

std::string sharded(const std::string& parameters, const std::string& dtype, const std::string& as_of, const std::string& config, const std::string& script, int world = 4,
                    const std::string& over = "world") {
  return fmt::format(R"({{"name": "a", "world_size": {}, "parameters": {}, "model_dtype": "{}", "engine": {{"framework": "deepspeed", "as_of": "{}", "config": {},
    "optimizer": {{"type": "SGD", "lr": 1.0}}}}, "contract": {{"window": "since_last_step", "average_over": "{}", "divide_by": "gradient_accumulation_steps"}}, "script": {}}})",
                     world, parameters, dtype, as_of, config, over, script);
}

// engine.optimizer's loss scale divides what a direct backward never multiplied: 1/2048 beside weights of 1/2.
TEST(few_runs_name, weights_that_a_loss_scale_leaves_beside_larger_ones) {
  expect_named(scenario_in(sharded(R"([{"name": "p0", "numel": 1}])", "fp16", "0.19.8",
                                   R"({"gradient_accumulation_steps": 1, "data_types": {"grad_accum_dtype": "fp32"}, "gradient_clipping": 0.0,
      "fp16": {"enabled": true, "loss_scale": 1024.0}, "zero_optimization": {"stage": 2}})",
                                   R"([{"set_boundary": true}, {"coalesce": [{"backward": {}}, {"backward": {}}, {"backward": {}}]}, {"step": {}},
      {"coalesce": [{"backward": {"direct": true}}, {"backward": {"direct": true}}, {"backward": {}}]}, {"step": {}}])",
                                   2)),
               {"rounding-excess", "wrong-scale"});
}

// The first window shows 3/65536; the second has 1/65536 beside 1/2, of which bf16 keeps nothing.
TEST(few_runs_name, weights_as_small_as_another_window_has_shown) {
  expect_named(scenario_in(sharded(R"([{"name": "p0", "numel": 13}])", "bf16", "0.18.0",
                                   R"({"gradient_accumulation_steps": 2, "data_types": {"grad_accum_dtype": "fp32"}, "gradient_clipping": 4.0, "bf16": {"enabled": true},
      "zero_optimization": {"stage": 1, "contiguous_gradients": false}})",
                                   R"([{"backward": {"direct": true}}, {"step": {}}, {"backward": {"scale_wrt_gas": false, "direct": true}},
      {"set_gradient": {"parameter": "p0", "times": 3.0}}, {"step": {}}, {"backward": {"direct": true}}, {"step": {}}, {"backward": {}}, {"step": {}}])",
                                   1)),
               {"wrong-scale"});
}

// A GradScaler divides again what a window without zero_grad() left: 1/2048 of it lies beside the next window's.
TEST(few_runs_name, what_a_scaler_leaves_of_earlier_windows) {
  expect_named(
      scenario_in(R"({"name": "a", "world_size": 2, "parameters": [{"name": "p0", "numel": 3}, {"name": "p1", "numel": 24}, {"name": "p2", "numel": 22, "trainable": false}],
    "model_dtype": "fp32", "engine": {"framework": "fsdp2", "as_of": "2.13.0", "config": {"reshard_after_forward": false,
    "mixed_precision": {"param_dtype": "bf16"}, "wrap": "root", "mesh": ["replicate", "shard"], "calls_unused_units": true, "input_requires_grad": true,
    "grad_scaler": {"init_scale": 1024.0}},
    "optimizer": {"type": "SGD", "lr": 1.0}}, "groups": {"replicate": [[0], [1]], "shard": [[0, 1]]},
    "contract": {"window": "since_last_step", "average_over": "none", "divide_by": "gradient_accumulation_steps"},
    "script": [{"repeat": {"times": 2, "of": [{"backward": {}}]}}, {"step": {}}, {"repeat": {"times": 3, "of": [{"backward": {}}]}}, {"step": {}},
    {"repeat": {"times": 5, "of": [{"backward": {}}]}}, {"step": {}}]})"),
      {"stale-gradient", "wrong-scale"});
}

// p1's weights have four unknowns in four rows: any numbers fit, those of a rank beside fit too and are plain.
TEST(few_runs_name, no_weights_that_as_many_rows_as_unknowns_fit) {
  expect_named(
      scenario_in(sharded(R"([{"name": "p0", "numel": 19}, {"name": "p1", "numel": 19}])", "fp16", "0.18.9",
                          R"({"gradient_accumulation_steps": 4, "communication_data_type": "bf16", "gradient_clipping": 0.0,
      "fp16": {"enabled": true, "loss_scale": 8.0, "hysteresis": 1},
      "zero_optimization": {"stage": 1, "use_multi_rank_bucket_allreduce": false, "offload_optimizer": {"device": "cpu"}}})",
                          R"([{"backward": {"uses": ["p1"], "phases": 2}}, {"step": {}}, {"step": {}}, {"step": {}}, {"backward": {"uses": ["p0"], "phases": 2, "direct": true}},
      {"backward": {"phases": 2}}, {"forward": {}}, {"backward": {"of": 0, "uses": ["p1"], "phases": 3}}, {"step": {}}, {"step": {}}])")),
      {"offload-loss", "wrong-scale"});
}

// Rank 3's gradients lie elsewhere in the bucket, and its two micro-batches are divided otherwise.
TEST(few_runs_name, elements_out_of_place_whose_micro_batches_are_divided_otherwise) {
  expect_named(
      scenario_in(sharded(R"([{"name": "p0", "numel": 23}, {"name": "p1", "numel": 13}])", "fp16", "0.19.8",
                          R"({"gradient_accumulation_steps": 2, "gradient_clipping": 0.0, "fp16": {"enabled": true, "initial_scale_power": 8},
      "zero_optimization": {"stage": 1, "contiguous_gradients": false, "reduce_bucket_size": 40, "overlap_comm": true}})",
                          R"([{"backward": {"scale_wrt_gas": false, "phases": 2}}, {"step": {}}, {"backward": {"order": {"3": ["p0"]}}}, {"zero_grad": "engine"}, {"step": {}}])")),
      {"misplaced-shard", "stale-gradient", "wrong-scale"});
}

// Of rank 2 elements are out of place; the others' are in theirs, and nothing of them is due.
TEST(few_runs_name, what_is_stale_beside_elements_out_of_place) {
  expect_named(scenario_in(sharded(R"([{"name": "p0", "numel": 5, "hooked_outputs": 2}, {"name": "p1", "numel": 4, "hooked_outputs": 2}])", "fp32", "0.19.8",
                                   R"({"gradient_accumulation_steps": 1, "gradient_clipping": 0.0,
      "zero_optimization": {"stage": 2, "reduce_bucket_size": 16, "offload_optimizer": {"device": "cpu", "pin_memory": true}}})",
                                   R"([{"backward": {"phases": 2, "order": {"2": ["p0"]}}}, {"zero_grad": "optimizer"}, {"step": {}}])")),
               {"misplaced-shard", "stale-gradient"});
}

// Two elements may have the same probe: what is out of place looks there like a weight that nobody asked for.
TEST(few_runs_name, nothing_stale_where_two_elements_have_the_same_number) {
  expect_named(scenario_in(R"({"name": "a", "world_size": 2, "parameters": [{"name": "p0", "numel": 19}, {"name": "p1", "numel": 3}, {"name": "expert0", "numel": 17, "expert": 0},
    {"name": "expert1", "numel": 17, "expert": 1}], "model_dtype": "fp32", "engine": {"framework": "deepspeed", "as_of": "0.19.8", "config": {"gradient_accumulation_steps": 1,
    "communication_data_type": "fp32", "gradient_clipping": 0.0, "zero_optimization": {"stage": 1, "contiguous_gradients": false, "reduce_bucket_size": 16}},
    "optimizer": {"type": "SGD", "lr": 1.0}, "expert_parallel_size": 2}, "contract": {"window": "since_last_step", "average_over": "world", "divide_by": "gradient_accumulation_steps"},
    "script": [{"backward": {"order": {"1": ["expert1"]}}}, {"backward": {"order": {"1": ["expert0"]}}}, {"step": {}}]})"),
               {"discarded-gradient", "misplaced-shard"});
}

// Rank 1 steps by itself, and its step waits for backwards that the others run later: what it applies has contributions of these.
TEST(few_runs_name, contributions_of_later_backwards_to_a_step_that_waited_for_them) {
  expect_named(
      scenario_in(sharded(
          R"([{"name": "p0", "numel": 17, "used_by": "micro_batch != 0"}])", "fp32", "0.19.8",
          R"({"gradient_accumulation_steps": 1, "managed_gradient_accumulation": false, "gradient_allreduce_op": "sum", "gradient_predivide_factor": 2.0,
    "communication_data_type": "bf16", "data_types": {"grad_accum_dtype": "fp32"}, "gradient_clipping": 0.0,
    "zero_optimization": {"stage": 1, "contiguous_gradients": false, "reduce_scatter": false}})",
          R"([{"backward": {"uses": ["p0"]}}, {"backward": {"uses": ["p0"]}}, {"step": {"ranks": [1]}}, {"backward": {"uses": ["p0"]}}, {"backward": {"uses": ["p0"]}}, {"step": {}}])",
          4, "none")),
      {"deadlock", "discarded-gradient", "stale-gradient", "wrong-scale"});
}

// The last element of p0 holds what the window before left. In the first run that is by chance the sum that is due; the values of another are wrong.
TEST(few_runs_name, what_is_stale_though_its_sums_in_one_run_are_those_due) {
  expect_named(
      scenario_in(sharded(R"([{"name": "p0", "numel": 7}, {"name": "p1", "numel": 13}])", "bf16", "0.19.8",
                          R"({"gradient_accumulation_steps": 2, "communication_data_type": "bf16", "gradient_clipping": 0.0,
      "bf16": {"enabled": true, "immediate_grad_update": true},
      "zero_optimization": {"stage": 2, "reduce_bucket_size": 16, "overlap_comm": true, "offload_optimizer": {"device": "cpu"}}})",
                          R"([{"backward": {"uses": ["p0"]}}, {"step": {}}, {"backward": {"uses": ["p0"]}}, {"set_gradient": {"parameter": "p0", "times": 0.5}}, {"step": {}},
      {"backward": {"uses": ["p0"]}}, {"step": {}}, {"backward": {"uses": ["p1"]}}, {"set_gradient": {"parameter": "p1", "times": 3.0}},
      {"overflow": {"ranks": [0], "micro_batch": 1}}, {"step": {}}])")),
      {"offload-loss", "stale-gradient", "wrong-norm"});
}

// Rank 0 has nothing of the only element of a parameter, in which an infinity is planted: a sum that is finite has no such contribution.
TEST(few_runs_name, an_infinity_that_does_not_arrive) {
  expect_named(
      scenario_in(
          R"({"name": "a", "world_size": 2, "parameters": [{"name": "of rank 1", "numel": 1, "used_by": "rank != 0"}, {"name": "shared", "numel": 3}], "model_dtype": "bf16",
    "engine": {"framework": "deepspeed", "as_of": "0.18.9", "config": {"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 1},
    "gradient_clipping": 0.0}, "optimizer": {"type": "SGD", "lr": 1.0}, "param_groups": [{"params": ["shared"], "lr": 0.5}, {"params": ["of rank 1"]}], "sequence_parallel_size": 2},
    "script": [{"backward": {"uses": ["shared"]}}, {"step": {}}, {"backward": {}}, {"overflow": {"ranks": [1], "micro_batch": 0}}, {"step": {}}, {"zero_grad": "engine"}]})"),
      {"boundary-leak", "deadlock", "discarded-gradient", "engine-error", "wrong-skip"});
}

// The values are wrong, and the weights as due in every run: nothing of that is open.
TEST(few_runs_name, rounding_alone_and_leave_no_weights_open_for_it) {
  const auto scenario = load_scenario(GRADLEDGER_SOURCE_DIR "/scenarios/live/11-stage-2-accumulates-in-bf16.json", {});
  ASSERT_TRUE(scenario.ok()) << scenario.error().text();
  const ref::Verdict few = judged_in_few(*scenario).verdict;
  EXPECT_EQ(classes(few), Set{"rounding-excess"}) << sentences(few);
  EXPECT_TRUE(few.unexplained.empty());
}

// Two of 28 elements are left out of it: as large as the elements that are made to cancel, which few runs have beside normal ones.
TEST(few_runs_name, a_norm_that_lacks_few_of_its_elements) {
  expect_named(scenario_in(sharded(R"([{"name": "p0", "numel": 24}, {"name": "expert0", "numel": 2, "expert": 0}, {"name": "expert1", "numel": 2, "expert": 1}])", "bf16", "0.19.8",
                                   R"({"gradient_accumulation_steps": 1, "gradient_clipping": 0.0, "bf16": {"enabled": true}, "zero_optimization": {"stage": 0}})",
                                   R"([{"backward": {}}, {"step": {}}])")),
               {"wrong-norm"});
}

// Ranks hold p0 and p1 in common, and count them once for each. Both ranks clip by one norm, and both are told of the same.
TEST(few_runs_name, a_norm_in_which_some_of_what_ranks_hold_counts_twice) {
  expect_named(scenario_in(R"({"name": "a", "world_size": 2, "parameters": [{"name": "p0", "numel": 12, "summed_over": "tp"}, {"name": "p1", "numel": 20},
    {"name": "p2", "numel": 42, "sharded_over": "tp"}], "model_dtype": "fp32", "layout": {"tp": 2}, "engine": {"framework": "ddp", "as_of": "2.13.0", "config": {},
    "optimizer": {"type": "AdamW", "lr": 0.125}}, "script": [{"backward": {}}, {"clip": {"max_norm": 0.01, "norm_over": "world"}}, {"step": {}}]})"),
               {"wrong-group"});
}

// A NaN in bf16 makes the norm one, by which the step is skipped: the run on weights skips it as well, and no window is shown as applied.
TEST(few_runs_name, no_window_of_bf16_as_judged_that_a_norm_makes_the_step_skip) {
  for (const char* zero : {R"({"stage": 3})", R"({"stage": 3, "offload_optimizer": {"device": "cpu"}})", R"({"stage": 1})"}) {
    const std::uint32_t promised = zero == std::string(R"({"stage": 1})");  // BF16_Optimizer's skip is documented, and judged
    const std::string data_types = promised ? R"("data_types": {"grad_accum_dtype": "fp32"}, )" : "";
    const Scenario s = scenario_in(
        sharded(R"([{"name": "p0", "numel": 5}, {"name": "p1", "numel": 12}])", "bf16", "0.19.8",
                fmt::format(R"({{"gradient_accumulation_steps": 1, {}"bf16": {{"enabled": true}}, "gradient_clipping": 0.0, "zero_optimization": {}}})", data_types, zero),
                R"([{"backward": {}}, {"overflow": {"micro_batch": 0, "value": "nan"}}, {"step": {}}])", 2));
    for (const ref::Verdict& verdict : {judge(s), judged_in_few(s).verdict}) {
      EXPECT_EQ(classes(verdict), Set{}) << zero << sentences(verdict);
      EXPECT_TRUE(verdict.applied.empty()) << zero;
      EXPECT_EQ(verdict.coverage.windows_judged, promised) << zero;
      EXPECT_EQ(verdict.coverage.windows_closed, 1u) << zero;
    }
  }
}

// Where an infinity is due, how far the numbers of elements lie apart says nothing of how likely one of them is by chance.
TEST(few_runs_name, what_is_private_to_a_rank_beside_an_infinity_and_not_elements_of_others) {
  expect_named(scenario_in(sharded(R"([{"name": "p0", "numel": 1}, {"name": "p1", "numel": 3}])", "bf16", "0.18.9",
                                   R"({"gradient_accumulation_steps": 1, "data_types": {"grad_accum_dtype": "fp32"}, "gradient_clipping": 0.0, "bf16": {"enabled": true},
      "zero_optimization": {"stage": 1}})",
                                   R"([{"backward": {}}, {"backward": {}}, {"backward": {}}, {"backward": {"direct": true}}, {"step": {}},
      {"no_sync": [{"backward": {"direct": true}}, {"backward": {}}, {"backward": {"direct": true}}]}, {"forward": {}}, {"backward": {"of": 0, "direct": true}},
      {"overflow": {"ranks": [0], "micro_batch": 3, "value": "-inf"}}, {"step": {}}])")),
               {"boundary-leak", "deadlock", "engine-error", "wrong-skip"});
}

// Autograd rounds a third of a gradient to fp16, whatever sums are kept in.
TEST(few_runs_name, weights_that_are_rounded_where_gradients_are_computed) {
  expect_named(scenario_in(R"({"name": "a", "world_size": 4, "parameters": [{"name": "p0", "numel": 1}, {"name": "p1", "numel": 15}], "model_dtype": "fp32", "tokens": 1,
    "engine": {"framework": "fsdp2", "as_of": "2.15.0", "config": {"mixed_precision": {"param_dtype": "fp16", "reduce_dtype": "fp32"}}, "optimizer": {"type": "SGD", "lr": 1.0}},
    "contract": {"window": "since_last_step", "average_over": "world", "divide_by": "tokens"},
    "script": [{"backward": {"weight": "world*tokens/tokens_of_window"}}, {"step": {}}, {"zero_grad": "optimizer"}, {"event": {"name": "set_is_last_backward", "value": false}},
    {"backward": {"weight": "world*tokens/tokens_of_window"}}, {"backward": {"weight": "world*tokens/tokens_of_window"}}, {"backward": {"weight": "world*tokens/tokens_of_window"}},
    {"step": {}}, {"event": {"name": "set_is_last_backward", "value": true}}, {"backward": {"weight": "world*tokens/tokens_of_window"}}, {"step": {}}]})"),
               {"stale-gradient", "stream-race"});
}

// A planted NaN comes before and behind every number: what is due where it lies is no other element's.
TEST(few_runs_name, what_is_stale_beside_a_nan_and_not_elements_of_others) {
  expect_named(scenario_in(R"({"name": "a", "world_size": 4, "parameters": [{"name": "p0", "numel": 13}, {"name": "p1", "numel": 14, "used_by": "rank < 1"}], "model_dtype": "fp32",
    "engine": {"framework": "fsdp2", "as_of": "2.15.0", "config": {"force_sum_reduction_for_comms": true, "reduce_scatter_unused_params": true, "calls_unused_units": true,
    "input_requires_grad": true, "grad_scaler": {"init_scale": 64.0, "growth_interval": 1}}, "optimizer": {"type": "SGD", "lr": 1.0}},
    "script": [{"zero_grad": "engine"}, {"backward": {}}, {"unscale": {}}, {"step": {}}, {"event": {"name": "set_is_last_backward", "value": false}},
    {"no_sync": [{"backward": {}}]}, {"event": {"name": "set_is_last_backward", "value": true}}, {"backward": {}},
    {"overflow": {"ranks": [0], "micro_batch": 1, "value": "nan"}}, {"step": {}}]})"),
               {"stale-gradient"});
}

// 16 bits round what is added up again and again, also where one contribution is alone: a weight of 25/76 is one of 21/64, and no quotient of two numbers.
TEST(few_runs_name, weights_that_repeated_sums_round_and_not_elements_of_others) {
  expect_named(scenario_in(R"({"name": "a", "world_size": 4, "parameters": [{"name": "p0", "numel": 24}, {"name": "p1", "numel": 14}], "model_dtype": "bf16",
    "engine": {"framework": "megatron", "as_of": "0.19.0", "config": {"ddp": {"use_distributed_optimizer": true, "average_in_collective": true},
    "optimizer_config": {"clip_grad": 0.0}, "schedule": {"num_microbatches": 1, "loss": "mean"}}, "optimizer": {"type": "SGD", "lr": 1.0}},
    "script": [{"backward": {}}, {"event": {"name": "finalize_model_grads"}}, {"backward": {}}, {"backward": {}}, {"backward": {}}, {"step": {}},
    {"event": {"name": "start_grad_sync"}}, {"backward": {}}, {"backward": {}}, {"event": {"name": "finalize_model_grads"}}, {"backward": {}}, {"backward": {}}, {"step": {}},
    {"event": {"name": "forward_backward_func"}}, {"backward": {}}, {"backward": {}}, {"backward": {}}, {"backward": {}}, {"step": {}}]})"),
               {"missing-reduction", "stale-gradient"});
}

// Experts' gradients lie elsewhere. In sums of 16 bits one contribution of another element passes for rounding; alone, its weights are other ones in each element.
TEST(few_runs_name, elements_of_others_that_sums_do_not_contradict) {
  expect_named(
      scenario_in(sharded(R"([{"name": "p0", "numel": 17}, {"name": "expert0", "numel": 23, "expert": 0}, {"name": "expert1", "numel": 23, "expert": 1}])", "bf16", "0.19.8",
                          R"({"gradient_accumulation_steps": 1, "managed_gradient_accumulation": false, "data_types": {"grad_accum_dtype": "fp32"},
      "gradient_clipping": 0.0, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "overlap_comm": true}})",
                          R"([{"forward": {}}, {"backward": {"of": 0, "phases": 3}}, {"forward": {}}, {"backward": {"of": 1, "phases": 2, "direct": true}},
      {"forward": {}}, {"backward": {"of": 2, "phases": 2, "order": {"3": ["expert0"]}}}, {"forward": {}}, {"backward": {"of": 3, "phases": 2, "direct": true}}, {"step": {}},
      {"forward": {}}, {"backward": {"of": 0, "phases": 2, "direct": true}}, {"forward": {}}, {"backward": {"of": 1, "phases": 3, "direct": true}},
      {"forward": {}}, {"backward": {"of": 2, "phases": 2}}, {"forward": {}}, {"backward": {"of": 3, "phases": 3, "order": {"1": ["expert1"]}}}, {"step": {}}])")),
      {"misplaced-shard"});
}

// Rank 3 has two elements, whose values are wrong first and whose sums are wrong first behind another event.
TEST(few_runs_name, of_a_window_what_is_wrong_first_be_it_in_values_or_in_sums) {
  expect_named(scenario_in(R"({"name": "a", "world_size": 4, "parameters": [{"name": "p0", "numel": 11}, {"name": "p1", "numel": 1}], "model_dtype": "fp32",
    "engine": {"framework": "deepspeed", "as_of": "0.19.8", "config": {"gradient_accumulation_steps": 3, "gradient_clipping": 4.0, "zero_optimization": {"stage": 3,
    "use_multi_rank_bucket_allreduce": false, "reduce_bucket_size": 40, "overlap_comm": false, "sub_group_size": 16}}, "optimizer": {"type": "SGD", "lr": 1.0},
    "sequence_parallel_size": 2},
    "script": [{"backward": {}}, {"zero_grad": "engine"}, {"coalesce": [{"forward": {}}, {"backward": {"of": 0}}]}, {"zero_grad": "optimizer"},
    {"coalesce": [{"backward": {}}]}, {"zero_grad": "optimizer"}, {"step": {}}, {"zero_grad": "engine"}, {"backward": {"scale_wrt_gas": false, "phases": 3}},
    {"zero_grad": "engine"}, {"step": {}}]})"),
               {"wrong-scale"});
}

// The norm is of gradients whose weights stay open here, and what a step applies is clipped by it.
TEST(few_runs_name, no_norm_of_gradients_that_they_leave_open) {
  const Scenario scenario = scenario_in(R"({"name": "a", "world_size": 2, "parameters": [{"name": "p0", "numel": 8}], "model_dtype": "fp16", "tokens": 4,
    "engine": {"framework": "megatron", "as_of": "0.19.0", "config": {"ddp": {"use_distributed_optimizer": true},
    "optimizer_config": {"clip_grad": 0.5, "initial_loss_scale": 64.0, "loss_scale_window": 2}, "model": {"calculate_per_token_loss": true}}, "optimizer": {"type": "SGD", "lr": 1.0}},
    "contract": {"window": "since_last_step", "average_over": "world", "divide_by": "tokens"},
    "script": [{"repeat": {"times": 4, "of": [{"backward": {"weight": "tokens"}}]}}, {"step": {}}]})");
  const Timeline timeline = make_timeline(scenario).value();
  const TwoVerdicts verdicts = judge_twice(scenario, timeline, [&] { return make_producer(scenario, timeline); });
  EXPECT_TRUE(verdicts.told_open()) << sentences(verdicts.few);
  EXPECT_FALSE(classes(verdicts.few).contains("wrong-norm")) << sentences(verdicts.few);
}

// Its one element is an infinity in every run: that the factor is lost, no run shows, and the verdict says so.
TEST(few_runs, say_which_gradients_a_planted_infinity_hides) {
  const auto of_size = [](int numel) {
    const Scenario scenario = scenario_in(sharded(fmt::format(R"([{{"name": "p0", "numel": {}}}])", numel), "bf16", "0.19.8",
                                                  R"({"gradient_accumulation_steps": 1, "gradient_allreduce_op": "sum", "data_types": {"grad_accum_dtype": "fp32"},
        "gradient_clipping": 0.0, "bf16": {"enabled": true}, "zero_optimization": {"stage": 1}})",
                                                  R"([{"backward": {}}, {"set_boundary": true}, {"set_gradient": {"parameter": "p0", "times": 3.0}},
        {"overflow": {"ranks": [1], "micro_batch": 0}}, {"step": {}}])",
                                                  4, "none"));
    return judged_in_few(scenario).verdict;
  };
  const auto says = [](const ref::Verdict& verdict) {
    return std::any_of(verdict.left_out.begin(), verdict.left_out.end(), [](const std::string& what) { return what.find("gradient of p0 holds beside") != std::string::npos; });
  };
  const ref::Verdict hidden = of_size(1), seen = of_size(2);
  EXPECT_TRUE(says(hidden));
  EXPECT_FALSE(says(seen));
  EXPECT_FALSE(seen.findings.empty()) << "the other element tells";
}

// Every rank skips every step, whatever its gradients are.
class SkipsEverything final : public Producer {
 public:
  explicit SkipsEverything(Producer& inner) : inner_(inner) {}

  std::string_view name() const override { return "skips everything"; }
  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override {
    Skipping skipping(sink);
    return inner_.run(source, options, skipping);
  }

 private:
  class Skipping final : public TraceSink {
   public:
    explicit Skipping(TraceSink& to) : to_(to) {}
    void observe(const Observation& o) override {
      if (o.role != Role::applied_gradient && !is_weight(o.role)) to_.observe(o);
    }
    void step_fact(const StepRecord& r) override {
      StepRecord said = r;
      if (r.fact == StepFact::updated) said.value = 0;
      if (r.fact == StepFact::skipped) said.value = 1;
      if (r.fact == StepFact::updated || r.fact == StepFact::skipped) to_.step_fact(said);
    }
    void event_done(std::uint32_t rank, std::uint32_t event) override { to_.event_done(rank, event); }

   private:
    static bool is_weight(Role role) { return role == Role::parameter || role == Role::master_parameter; }
    TraceSink& to_;
  };

  Producer& inner_;
};

// Values of many micro-batches may add up to what fp16 has no room for, in some order, and be skipped. Probes have room for it.
TEST(few_runs_name, a_skip_of_what_every_format_has_room_for) {
  Scenario s = base_scenario(4, {30, 21}, Dtype::float16);
  deepspeed_config(s).zero.stage = 1;
  deepspeed_config(s).gradient_accumulation_steps = 64;
  deepspeed_config(s).fp16.loss_scale = std::exp2(30);
  s.script = managed(64);
  const Timeline timeline = make_timeline(s).value();
  const auto inner = make_producer(s, timeline);
  SkipsEverything skipping(*inner);
  const ref::Verdict verdict = judged_in_few(s, timeline, skipping).verdict;
  EXPECT_EQ(classes(verdict), Set{"wrong-skip"}) << sentences(verdict);
  EXPECT_NE(sentences(verdict).find("in a run on probes that every format has room for no rank applies a gradient"), std::string::npos) << sentences(verdict);
}

// Numbers of eight ranks in bf16 are 1 or 2: what explains one parameter explains some elements of the next by chance, and something else all of them.
TEST(few_runs_name, what_explains_a_stretch_before_what_explains_some_of_it) {
  const Scenario s = load_scenario(std::filesystem::path(GRADLEDGER_SOURCE_DIR) / "scenarios/layouts/never-finalized-beside-copies.json").value();
  const Timeline timeline = make_timeline(s).value();
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const auto producer = make_producer(s, timeline);
    ref::OracleOptions options;
    options.seed = seed;
    const ref::Verdict verdict = judged_in_few(s, timeline, *producer, options).verdict;
    EXPECT_EQ(classes(verdict), (Set{"missing-reduction", "stale-gradient"})) << seed << ": " << sentences(verdict);
  }
}

// The loop's hook applies it in no_sync: what an optimizer has inside a backward holds that backward's gradients, due or not.
TEST(few_runs_name, what_is_applied_inside_a_backward_before_its_window_is_over) {
  expect_named(load_scenario(std::filesystem::path(GRADLEDGER_SOURCE_DIR) / "scenarios/ddp/optimizer-in-a-hook-in-no-sync.json").value(),
               {"discarded-gradient", "missing-reduction", "stale-gradient"});
}

// A GradScaler's loop that does not clear gradients, in fp32: what is left is odd beside the window's own, and in a few elements some other weight explains both.
TEST(few_runs_name, what_a_scaler_left_from_runs_that_have_it_alone) {
  const Scenario s = scenario_in(
      R"({"name": "a", "world_size": 2, "parameters": [{"name": "w0", "numel": 12}, {"name": "w1", "numel": 5}, {"name": "w2", "numel": 12}, {"name": "w3", "numel": 7}],
    "model_dtype": "fp32", "engine": {"framework": "fsdp2", "as_of": "2.13.0", "config": {"gradient_divide_factor": 8, "grad_scaler": {"growth_interval": 1}},
    "optimizer": {"type": "Adam", "lr": 0.01}}, "script": [{"step": {}}, {"backward": {}}, {"backward": {}}, {"step": {}}, {"backward": {}}, {"step": {}}, {"step": {}}, {"backward": {}}],
    "after_error": "go_on"})");
  const Timeline timeline = make_timeline(s).value();
  const Set names = classes(judge(s));
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const auto producer = make_producer(s, timeline);
    ref::OracleOptions options;
    options.seed = seed;
    const ref::Verdict verdict = judged_in_few(s, timeline, *producer, options).verdict;
    EXPECT_EQ(classes(verdict), names) << seed << ": " << sentences(verdict);
  }
}

}  // namespace
}  // namespace gradledger::testing
