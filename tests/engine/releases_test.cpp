// What moved between releases, by numbers that real runs of them gave: the wrapper of a base optimizer, the loss scale, pipelines, uses of a
// module beside its engine, the buckets of stage 3 and its copies to the host.
#include <algorithm>
#include <limits>
#include <span>

#include <gtest/gtest.h>

#include "sim/frameworks/deepspeed/engine/loss_scaler.h"
#include "sim/frameworks/deepspeed/engines.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/framework.h"
#include "tests/engine/releases.h"

namespace gradledger::testing {
namespace {

Scenario in_two_stages(std::uint32_t number, Dtype dtype, const char* as_of, std::uint32_t micro_batches) {
  Scenario s = of_stage(number, dtype, as_of, {24, 19});
  s.world_size = 4;
  s.engine.pipeline_stages = 2;
  s.parameters[1].pipeline_stage = 1;
  deepspeed_config(s).gradient_accumulation_steps = micro_batches;
  s.script = {repeat(2, {backward(micro_batches), step()})};
  return s;
}

// What contributions weigh in the gradients that a run of ranks apply, where they weigh anything.
std::set<double> applied_weights(const Scenario& s, std::uint32_t first_rank, std::uint32_t ranks) {
  std::set<double> out;
  const ref::Verdict verdict = judge(s);
  for (const ref::AppliedRow& applied : verdict.applied)
    if (applied.rank >= first_rank && applied.rank < first_rank + ranks) out.insert(applied.row.observed.begin(), applied.row.observed.end());
  out.erase(0.0);
  return out;
}

// ---- which wrapper ----------------------------------------------------------------------------------------------------------------------

TEST(wrappers_of_fp16, are_chosen_by_the_base_optimizer_in_every_release_that_has_them) {
  for (const char* as_of : {"0.16.0", "0.17.6", "0.18.2", "0.19.6", "head"}) {
    Scenario s = of_stage(0, Dtype::float16, as_of);
    EXPECT_EQ(engine_name(s), "FP16_UnfusedOptimizer") << as_of;
    for (const OptimizerType type : {OptimizerType::adam, OptimizerType::adamw}) {
      s.engine.optimizer = {.type = type};
      EXPECT_EQ(engine_name(s), "FP16_Optimizer") << as_of;
      s.engine.optimizer.torch_adam = true;
      EXPECT_EQ(engine_name(s), "FP16_UnfusedOptimizer") << as_of;
    }
  }
  Scenario s = of_stage(1, Dtype::bfloat16, "0.18.4");
  deepspeed_config(s).grad_accum_dtype = Dtype::float32;
  s.engine.optimizer.type = OptimizerType::adam;
  EXPECT_EQ(engine_name(s), "FP16_Optimizer");
}

// ---- loss scale -------------------------------------------------------------------------------------------------------------------------

TEST(scale_growth, of_zero_came_a_step_earlier_before_0_17_1_and_that_of_stage_0_never_did) {
  const auto scales = [](std::uint32_t stage, const char* as_of) {
    Scenario s = of_stage(stage, Dtype::float16, as_of, {8});
    deepspeed_config(s).fp16 = {.enabled = true, .initial_scale_power = 4, .loss_scale_window = 1, .hysteresis = 1};
    s.script = {repeat(3, {backward(), step()})};
    std::vector<double> out;
    const Keeper seen = run(s);
    for (const auto& [key, value] : seen.facts)
      if (std::get<0>(key) == 0 && std::get<2>(key) == StepFact::loss_scale) out.push_back(value);
    return out;
  };
  const std::vector<double> early{32, 64, 128}, late{16, 32, 64};
  for (const std::uint32_t stage : {1u, 2u, 3u}) {
    EXPECT_EQ(scales(stage, "0.17.0"), early) << stage;
    EXPECT_EQ(scales(stage, "0.17.1"), late) << stage;
  }
  for (const char* as_of : {"0.16.0", "0.17.0", "0.17.1"}) EXPECT_EQ(scales(0, as_of), late) << as_of;
}

TEST(scale_growth, starts_anew_after_an_overflow_by_either_rule) {
  const Fp16Config config{.enabled = true, .initial_scale_power = 4, .loss_scale_window = 2, .hysteresis = 1};
  const auto after = [&](ScaleGrowth growth, const std::string& steps) {
    LossScaler scaler(config, true, growth);
    for (const char step : steps) scaler.update(step == 'o');
    return scaler.scale();
  };
  EXPECT_EQ(after(ScaleGrowth::after_a_window, ".o."), 8);
  EXPECT_EQ(after(ScaleGrowth::after_a_window, ".o.."), 16);
  EXPECT_EQ(after(ScaleGrowth::one_step_later, ".o.."), 8);
  EXPECT_EQ(after(ScaleGrowth::one_step_later, ".o..."), 16);
}

// ---- pipelines --------------------------------------------------------------------------------------------------------------------------

TEST(pipelines, divide_by_the_accumulation_steps_once_nowhere_or_in_each_stage) {
  struct Row {
    const char* as_of;
    double first, last;  // two ranks a stage, four micro-batches
  };
  for (const Row& row : {Row{"before #6675", 1.0 / 8, 1.0 / 8}, Row{"0.16.0", 1.0 / 2, 1.0 / 2}, Row{"0.18.2", 1.0 / 2, 1.0 / 2}, Row{"0.18.3", 1.0 / 32, 1.0 / 8},
                         Row{"0.19.2", 1.0 / 32, 1.0 / 8}, Row{"0.19.3", 1.0 / 8, 1.0 / 8}, Row{"head", 1.0 / 8, 1.0 / 8}}) {
    const Scenario s = in_two_stages(1, Dtype::bfloat16, row.as_of, 4);
    EXPECT_EQ(applied_weights(s, 0, 2), std::set<double>{row.first}) << row.as_of;
    EXPECT_EQ(applied_weights(s, 2, 2), std::set<double>{row.last}) << row.as_of;
  }
}

TEST(pipelines, ran_the_backward_of_their_first_stages_on_their_own_from_0_18_3_to_0_18_4) {
  const auto raised = [](const Scenario& s) {
    std::map<std::uint32_t, std::string> by_rank;
    const Keeper seen = run(s);
    for (const EngineErrorRecord& error : seen.errors) by_rank[error.rank] = error.type;
    return by_rank;
  };
  const std::map<std::uint32_t, std::string> none, first_stage{{0, "RuntimeError"}, {1, "RuntimeError"}};
  for (const char* as_of : {"0.18.3", "0.18.4"}) {
    EXPECT_EQ(raised(in_two_stages(0, Dtype::float32, as_of, 1)), first_stage) << as_of;
    EXPECT_EQ(raised(in_two_stages(0, Dtype::float16, as_of, 1)), first_stage) << as_of;
    Scenario scaled = in_two_stages(1, Dtype::float16, as_of, 1);
    EXPECT_EQ(raised(scaled), first_stage) << as_of;
    deepspeed_config(scaled).fp16.loss_scale = 8;
    EXPECT_EQ(raised(scaled), none) << as_of;
    EXPECT_EQ(raised(in_two_stages(1, Dtype::bfloat16, as_of, 1)), none) << as_of;
  }
  for (const char* as_of : {"0.18.2", "0.18.5"})
    for (const std::uint32_t number : {0u, 1u}) EXPECT_EQ(raised(in_two_stages(number, Dtype::float16, as_of, 1)), none) << as_of;
}

TEST(pipelines, update_at_the_step_behind_all_micro_batches_wherever_others_stand) {
  Scenario s = in_two_stages(1, Dtype::bfloat16, "head", 4);
  for (const std::vector<ScriptItem>& window : {std::vector<ScriptItem>{backward(4), step()}, managed(4), {backward(), step(), backward(3), step()}}) {
    s.script = {repeat(2, window)};
    EXPECT_EQ(sentences(judge(s)), "");
    EXPECT_EQ(make_timeline(s)->steps, 2u);
  }
  s.script = {backward(3), step()};
  EXPECT_TRUE(make_timeline(s)->open_window);
}

// ---- a module used beside its engine ------------------------------------------------------------------------------------------------------

TEST(uses_of_a_parameter, are_divided_each_by_the_hooks_that_it_passes) {
  const auto weights = [](const char* as_of, std::vector<std::uint32_t> hooks) {
    Scenario s = of_stage(2, Dtype::float32, as_of, {24});
    s.parameters[0].hooked_outputs = hooks[0];
    for (std::size_t use = 1; use < hooks.size(); ++use) {
      s.parameters.push_back({.name = "use " + std::to_string(use), .numel = 24});
      s.parameters.back().tied_to = 0;
      s.parameters.back().hooked_outputs = hooks[use];
    }
    deepspeed_config(s).gradient_accumulation_steps = 4;
    s.script = managed(4);
    return applied_weights(s, 0, 2);
  };
  EXPECT_EQ(weights("0.18.9", {1, 1}), std::set<double>{1.0 / 8});
  EXPECT_EQ(weights("0.18.9", {1, 0}), std::set<double>{5.0 / 16});
  EXPECT_EQ(weights("0.18.9", {0, 0}), std::set<double>{1.0 / 2});
  EXPECT_EQ(weights("0.18.9", {1, 1, 1, 0}), std::set<double>{7.0 / 32});
  EXPECT_EQ(weights("0.17.5", {1, 0}), std::set<double>{1.0 / 8}) << "the loss is divided as a whole";
}

// ---- stage 3 ------------------------------------------------------------------------------------------------------------------------------

TEST(stage_3, reduced_each_parameter_alone_behind_the_first_full_bucket_of_0_17_2) {
  const auto reductions = [](const char* as_of) {
    Scenario s = of_stage(3, Dtype::bfloat16, as_of, std::vector<std::uint32_t>(6, 16));
    deepspeed_config(s).zero.reduce_bucket_size = 32;
    s.script = {repeat(3, {backward(), step()})};
    std::map<std::uint32_t, int> by_event;
    const Keeper seen = run(s);
    for (const CollectiveRecord& r : seen.collectives)
      if (r.rank == 0 && r.purpose == Purpose::gradient) ++by_event[r.event];
    std::vector<int> out;
    for (const auto& [event, count] : by_event) out.push_back(count);
    return out;
  };
  EXPECT_EQ(reductions("0.17.1"), (std::vector<int>{3, 3, 3}));
  EXPECT_EQ(reductions("0.17.2"), (std::vector<int>{5, 6, 6}));
  EXPECT_EQ(reductions("0.17.3"), (std::vector<int>{3, 3, 3}));
}

TEST(stage_3, applied_the_first_gradient_for_ever_in_0_17_2_without_reduce_scatter_until_the_bucket_was_full) {
  const auto found = [](std::uint64_t bucket_size) {
    Scenario s = of_stage(3, Dtype::bfloat16, "0.17.2", {16, 16});
    deepspeed_config(s).zero.reduce_scatter = false;
    deepspeed_config(s).zero.reduce_bucket_size = bucket_size;
    s.script = {repeat(3, {backward(), step()})};
    std::set<std::uint32_t> steps;
    const ref::Verdict verdict = judge(s);
    for (const ref::AppliedRow& applied : verdict.applied)
      if (applied.row.observed != applied.row.expected) steps.insert(applied.step);
    return steps;
  };
  EXPECT_EQ(found(1000), (std::set<std::uint32_t>{1, 2}));
  EXPECT_EQ(found(64), (std::set<std::uint32_t>{1})) << "two backwards fill it, the third is reduced parameter by parameter";
  EXPECT_EQ(found(32), (std::set<std::uint32_t>{}));
}

std::size_t waits_of_the_host(const Scenario& s) {
  const auto timeline = make_timeline(s);
  HostExecutor executor(s, *timeline);
  Keeper seen;
  executor.run(CountingSource{}, RunOptions{}, seen);
  std::size_t waits = 0;
  for (const Op& op : executor.ranks()[0].program.ops) waits += op.kind == OpKind::wait && op.stream == Stream::host;
  return waits;
}

TEST(pin_memory, is_the_default_since_0_19_5_and_blocked_the_master_copy_of_stage_3_before) {
  const auto waits = [](std::uint32_t stage, const char* as_of, std::optional<bool> pinned) {
    Scenario s = of_stage(stage, Dtype::bfloat16, as_of, {16});
    deepspeed_config(s).zero.offload_optimizer = OffloadDevice::cpu;
    deepspeed_config(s).zero.offload_pin_memory = pinned;
    s.script = {backward(), step()};
    return waits_of_the_host(s);
  };
  for (const std::uint32_t stage : {1u, 2u, 3u}) {
    EXPECT_EQ(waits(stage, "0.19.4", std::nullopt), waits(stage, "0.19.4", false)) << stage;
    EXPECT_EQ(waits(stage, "0.19.5", std::nullopt), waits(stage, "0.19.5", true)) << stage;
    EXPECT_LT(waits(stage, "0.19.5", true), waits(stage, "0.19.5", false)) << stage;
    EXPECT_EQ(waits(stage, "0.19.4", true) - waits(stage, "0.19.5", true), stage == 3 ? 1u : 0u) << stage;
  }
}

// ---- what no release has ------------------------------------------------------------------------------------------------------------------

TEST(set_gradient, of_a_parameter_that_has_no_place_in_the_list_raises) {
  Scenario s = of_stage(2, Dtype::bfloat16, "head", {8, 8, 8});
  s.engine.as_of.switches["missing_gradient"] = "shifts";
  s.parameters[1].used_by = *Predicate::parse("micro_batch > 5", "");
  s.script = {backward(), set_of("w1", 2), step()};
  const Keeper seen = run(s);
  ASSERT_EQ(seen.errors.size(), 2u);
  for (const EngineErrorRecord& error : seen.errors) EXPECT_EQ(error.type, "IndexError");
  s.script = {backward(), set_of("w0", 2), step()};
  EXPECT_TRUE(run(s).errors.empty());
}

// ---- direct backwards ---------------------------------------------------------------------------------------------------------------

// Before DeepSpeed#7665 one leaves its parameters in the bucket, and a step takes their gradients away. The next backward finds the bucket full; a
// gradient is then asked for where the host accumulates it, or at a boundary, and else the parameter that comes again is told from the rest.
TEST(direct_backwards, leave_a_bucket_whose_gradients_offload_asks_for_where_it_reads_them) {
  const auto type_of = [](std::uint32_t steps, bool boundary_then) {
    Scenario s = of_stage(2, Dtype::bfloat16, "0.18.0", {5, 9, 7, 8});
    deepspeed_config(s).gradient_accumulation_steps = steps;
    deepspeed_config(s).zero.offload_optimizer = OffloadDevice::cpu;
    deepspeed_config(s).zero.reduce_bucket_size = 30;
    ScriptItem direct = backward();
    direct.direct = true;
    s.script = {boundary(true), backward(), direct, step(), boundary(boundary_then), backward(), boundary(true), backward(), step()};
    const Keeper seen = run(s);
    return seen.errors.empty() ? std::string() : seen.errors.front().type;
  };
  EXPECT_EQ(type_of(1, false), "AssertionError");
  EXPECT_EQ(type_of(1, true), "AttributeError");
  EXPECT_EQ(type_of(2, false), "AttributeError");
}

// ---- empty parameters, and what a bucket keeps ------------------------------------------------------------------------------------

// Since 0.19.8 an empty parameter is none of the wrapper's: no hook of it makes the buckets that an unmanaged step looks into.
TEST(empty_parameters, have_no_hook_since_0_19_8) {
  for (const auto& [as_of, type] : {std::pair{"0.19.7", ""}, {"0.19.8", "IndexError"}}) {
    Scenario s = of_stage(1, Dtype::float32, as_of, {7, 0, 6});
    deepspeed_config(s).managed_gradient_accumulation = false;
    for (const std::uint32_t p : {0u, 2u}) s.parameters[p].used_by = Predicate::parse("step > 0", "").value();
    s.script = {repeat(2, {backward(), step()})};
    const Keeper seen = run(s);
    EXPECT_EQ(seen.errors.empty() ? std::string() : seen.errors.front().type, type) << as_of;
  }
}

// With offload an overflow is looked for as a boundary keeps the gradient, after what came before it in the bucket; without, in the step.
TEST(empty_parameters, are_looked_into_where_their_gradient_goes_to_the_host) {
  for (const auto& [as_of, raised_at] : {std::pair{"0.19.5", 1u}, {"0.19.6", never}}) {
    Scenario s = of_stage(2, Dtype::float32, as_of, {6, 0});
    s.world_size = 4;
    deepspeed_config(s).zero.offload_optimizer = OffloadDevice::cpu;
    s.script = {boundary(false), backward(), boundary(true), backward(), step()};
    const Keeper seen = run(s);
    ASSERT_EQ(seen.errors.size(), raised_at == never ? 0u : 1u) << as_of;
    if (raised_at == never) continue;
    EXPECT_EQ(seen.errors[0].type, "RuntimeError");
    EXPECT_EQ(seen.errors[0].rank, 3u);  // whose partition begins behind all six elements
    EXPECT_EQ(seen.errors[0].event, 3u);
  }
}

// What the last rank has of a group is padded to a multiple of the partition's length. Runs of 0.17.4, 0.18.9 and 0.19.1 raise so.
TEST(groups_of_empty_parameters, end_the_step_of_the_rank_that_pads) {
  for (const auto& [as_of, types] : {std::pair{"0.17.4", std::vector<std::string>{"RuntimeError", "ZeroDivisionError"}}, {"0.18.9", {"ZeroDivisionError"}}}) {
    Scenario s = of_stage(1, Dtype::float32, as_of, {0, 8});
    s.engine.param_groups = {OptimizerGroup{{0}, {}, {}}, OptimizerGroup{{1}, {}, {}}};
    deepspeed_config(s).zero.reduce_scatter = false;
    s.script = {backward(), step()};
    std::vector<std::string> seen;
    for (const EngineErrorRecord& error : run(s).errors) seen.push_back(error.type);
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, types) << as_of;
  }
}

TEST(groups_of_empty_parameters, are_refused_since_0_19_8) {
  for (const Dtype dtype : {Dtype::float32, Dtype::bfloat16}) {
    Scenario s = of_stage(1, dtype, "0.19.8", {0, 8});
    if (dtype == Dtype::bfloat16) deepspeed_config(s).grad_accum_dtype = Dtype::float32;
    EXPECT_TRUE(deepspeed::select_wrapper(s).ok());
    s.engine.param_groups = {OptimizerGroup{{0}, {}, {}}, OptimizerGroup{{1}, {}, {}}};
    const auto refused = deepspeed::select_wrapper(s);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().where, "/parameters/0/numel");
    s.engine.as_of.base = "0.19.7";
    EXPECT_TRUE(deepspeed::select_wrapper(s).ok());
  }
}

// The end of a reduction lets go of the bucket's buffers, and only a backward makes them again. Runs of the releases named raise so.
TEST(buckets_of_stages_1_and_2, that_no_backward_filled_cannot_be_reduced) {
  for (const auto& [as_of, type] : {std::pair{"0.16.5", "TypeError"}, {"0.17.6", "IndexError"}, {"0.19.8", "IndexError"}})
    for (const std::uint32_t stage : {1u, 2u})
      for (const std::vector<ScriptItem>& before : {std::vector<ScriptItem>{}, {backward()}}) {
        Scenario s = of_stage(stage, Dtype::bfloat16, as_of, {7, 6});
        s.script = before;
        s.script.push_back(event(ScriptKind::finalize));
        const Keeper seen = run(s);
        ASSERT_EQ(seen.errors.size(), 2u) << as_of << ", stage " << stage << ", " << before.size();
        EXPECT_EQ(seen.errors[0].type, before.empty() && type == std::string("TypeError") ? "AttributeError" : type);
        s.script = {boundary(false), backward(), event(ScriptKind::finalize)};
        EXPECT_EQ(run(s).errors.empty(), stage == 1) << as_of;  // stage 2 has reduced it, whatever the boundary
      }
}

// At 0.17.2 three backwards of one parameter each reduce what the first left at the beginning of the bucket. Divided by 1/2 and not
// multiplied there again, it is twice as large each time: 1/4 of 1 + 2 + 4.
TEST(buckets_of_stage_3, keep_what_was_not_multiplied_by_the_predivide_factor) {
  Scenario s = of_stage(3, Dtype::bfloat16, "0.17.2", {9});
  deepspeed_config(s).gradient_accumulation_steps = 2;
  deepspeed_config(s).grad_accum_dtype = Dtype::float32;
  deepspeed_config(s).gradient_predivide_factor = 0.5;
  deepspeed_config(s).zero.reduce_scatter = false;
  s.script = {boundary(false), backward(2), boundary(true), backward(), step()};
  EXPECT_EQ(applied_weights(s, 0, 2), std::set<double>{1.75});
  s.engine.as_of.base = "0.17.3";
  EXPECT_EQ(applied_weights(s, 0, 2), std::set<double>{0.25});
}

// ---- groups of parameters -----------------------------------------------------------------------------------------------------------

// DeepSpeed#7700: before it, and since DeepSpeed#7509, the first parameter of each group's partition was looked at, on ranks that have none too.
TEST(parameter_groups, of_which_a_rank_owns_nothing_raise_from_0_17_6_to_0_18_2) {
  for (const auto& [as_of, raises] : {std::pair{"0.17.5", false}, {"0.17.6", true}, {"0.18.2", true}, {"0.18.3", false}}) {
    Scenario s = of_stage(2, Dtype::bfloat16, as_of, {12, 1, 7});
    s.engine.param_groups.resize(2);
    s.engine.param_groups[0].parameters = {0, 2};
    s.engine.param_groups[1].parameters = {1};
    s.script = {backward(), step()};
    const Keeper seen = run(s);
    ASSERT_EQ(seen.errors.size(), raises ? 1u : 0u) << as_of;
    if (!raises) continue;
    EXPECT_EQ(seen.errors[0].rank, 1u);
    EXPECT_EQ(seen.errors[0].type, "IndexError");
  }
}

// ---- BF16_Optimizer -----------------------------------------------------------------------------------------------------------------

// An infinity of rank 0 in the second backward.
class SecondIsInfinite final : public GradientSource {
 public:
  void gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t, std::uint64_t, std::span<double> out) const override {
    std::fill(out.begin(), out.end(), backward == 1 && rank == 0 ? std::numeric_limits<double>::infinity() : 1.0);
  }
};

TEST(bf16_optimizer, skips_a_step_whose_norm_is_infinite_since_0_19_8_and_does_not_call_it_an_update) {
  const auto run_as_of = [](const char* as_of) {
    Scenario s = of_stage(1, Dtype::bfloat16, as_of, {8});
    deepspeed_config(s).grad_accum_dtype = Dtype::float32;
    s.script = {backward(), step(), backward(), step()};
    const auto timeline = make_timeline(s);
    Keeper out;
    HostExecutor(s, *timeline).run(SecondIsInfinite{}, {}, out);
    return out;
  };
  const Keeper before = run_as_of("0.19.7"), since = run_as_of("0.19.8");
  ASSERT_EQ(before.errors.size(), 2u);
  EXPECT_EQ(before.errors[0].type, "AssertionError");
  EXPECT_TRUE(since.errors.empty());
  for (const std::uint32_t rank : {0u, 1u}) {
    EXPECT_EQ(since.facts.at({rank, 1, StepFact::updated}), 1.0);
    EXPECT_EQ(since.facts.at({rank, 3, StepFact::skipped}), 1.0);
    EXPECT_EQ(since.facts.at({rank, 3, StepFact::updated}), 0.0);
  }
}

}  // namespace
}  // namespace gradledger::testing
