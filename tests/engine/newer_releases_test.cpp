// What moved with DeepSpeed#7018 (0.16.5), DeepSpeed#7330 (0.17.1), DeepSpeed#7586 (0.18.0), DeepSpeed#7786 (0.18.5), and in 0.19.8: the release before and after.
#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "sim/frameworks/deepspeed/engines.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/framework.h"
#include "tests/engine/releases.h"

namespace gradledger::testing {
namespace {

std::string error_of(const Scenario& s) {
  const Keeper seen = run(s);
  return seen.errors.empty() ? std::string() : seen.errors.front().type;
}

// The second backward is the same number everywhere, on every rank; the others are ones.
class SecondIs final : public GradientSource {
 public:
  explicit SecondIs(double value) : value_(value) {}
  void gradient(std::uint32_t backward, std::uint32_t, std::uint32_t, std::uint64_t, std::span<double> out) const override {
    std::fill(out.begin(), out.end(), backward == 1 ? value_ : 1.0);
  }

 private:
  double value_;
};

// ---- 0.16.5 -------------------------------------------------------------------------------------------------------------------------

// Without an epilogue, which a direct backward has none of yet, only the hook adds to BF16_Optimizer's buffer; else the step finds no gradient.
TEST(bf16_optimizer, accumulated_in_its_hook_by_default_from_0_16_5_to_0_17_0) {
  for (const auto& [as_of, error] : {std::pair{"0.16.0", "IndexError"}, {"0.16.4", "IndexError"}, {"0.16.5", ""}, {"0.17.0", ""}, {"0.17.1", "IndexError"}}) {
    Scenario s = of_stage(1, Dtype::bfloat16, as_of, {8});
    deepspeed_config(s).grad_accum_dtype = Dtype::float32;
    ScriptItem direct = backward();
    direct.direct = true;
    s.script = {direct, step()};
    EXPECT_EQ(error_of(s), error) << as_of;
  }
}

TEST(bf16_optimizer, let_go_of_the_last_gradients_before_a_backward_until_0_16_5_zeroed_them) {
  for (const auto& [as_of, kept] : {std::pair{"0.16.4", false}, {"0.16.5", true}}) {
    Scenario s = of_stage(1, Dtype::bfloat16, as_of, {8, 8});
    deepspeed_config(s).grad_accum_dtype = Dtype::float32;
    deepspeed_config(s).bf16.immediate_grad_update = false;
    deepspeed_config(s).gradient_accumulation_steps = 2;
    s.parameters[1].used_by = Predicate::parse("micro_batch < 1", "").value();
    s.script = managed(2);
    const Keeper seen = run(s);
    ASSERT_TRUE(seen.errors.empty()) << as_of;
    const auto unused = seen.snapshots.find({0, 2, "w1.grad"});
    ASSERT_EQ(unused != seen.snapshots.end(), kept) << as_of;
    if (kept) EXPECT_EQ(unused->second, std::vector<double>(8, 0.0));
  }
}

// A window of one backward stores on the host. One of two backwards and one reduction then adds to that, where the counter counts backwards.
TEST(stage_1_with_offload, counted_backwards_until_0_16_5_and_so_added_what_an_earlier_window_stored) {
  for (const auto& [as_of, right] : {std::pair{"0.16.4", false}, {"0.16.5", true}}) {
    Scenario s = of_stage(1, Dtype::bfloat16, as_of, {8});
    deepspeed_config(s).zero.offload_optimizer = OffloadDevice::cpu;
    deepspeed_config(s).gradient_accumulation_steps = 2;
    s.script = {boundary(true), backward(), step(), boundary(false), backward(), boundary(true), backward(), step()};
    EXPECT_EQ(classes(judge(s)).contains("stale-gradient"), !right) << as_of << ": " << sentences(judge(s));
  }
}

// ---- 0.17.1 -------------------------------------------------------------------------------------------------------------------------

TEST(fp16_optimizer, raises_in_every_step_with_a_static_loss_scale_before_0_17_1) {
  for (const auto& [as_of, scale, error] : {std::tuple{"0.17.0", 8.0, "TypeError"}, {"0.17.1", 8.0, ""}, {"0.17.0", 0.0, ""}}) {
    Scenario s = of_stage(0, Dtype::float16, as_of, {8});
    s.engine.optimizer.type = OptimizerType::adam;
    deepspeed_config(s).fp16.loss_scale = scale;
    s.script = {backward(), step()};
    EXPECT_EQ(error_of(s), error) << as_of;
    s.engine.optimizer.torch_adam = true;
    EXPECT_EQ(error_of(s), "") << as_of;
  }
}

// ---- 0.18.0 and 0.18.5: checkpoints at stage 0 in bf16 ---------------------------------------------------------------------------------

Scenario restored(Dtype dtype, const char* as_of) {
  Scenario s = of_stage(0, dtype, as_of, {8});
  s.engine.optimizer.learning_rate = 0.25;
  s.script = {repeat(2, {backward(), step()}), event(ScriptKind::save), event(ScriptKind::restore), repeat(2, {backward(), step()})};
  return s;
}

TEST(checkpoints, of_stage_0_in_bf16_could_not_be_loaded_at_0_17_6) {
  for (const auto& [as_of, error] : {std::pair{"0.17.5", ""}, {"0.17.6", "AttributeError"}, {"0.18.0", ""}, {"0.18.5", ""}, {"head", ""}})
    EXPECT_EQ(error_of(restored(Dtype::bfloat16, as_of)), error) << as_of;
  for (const Dtype other : {Dtype::float16, Dtype::float32}) EXPECT_EQ(error_of(restored(other, "0.17.6")), "");
}

// What the masters are after the load: those of the steps before, or those that the fresh engine was built with.
TEST(checkpoints, of_stage_0_in_bf16_brought_back_weights_alone_from_0_18_0_to_0_18_4) {
  const auto masters = [](Dtype dtype, const char* as_of) {
    Scenario s = restored(dtype, as_of);
    const Keeper seen = run(s);
    std::vector<std::vector<double>> out;
    for (const auto& [key, values] : seen.snapshots)
      if (std::get<0>(key) == 0 && std::get<2>(key) == "fp32_groups[0]") out.push_back(values);
    EXPECT_EQ(out.size(), 4u) << as_of;  // one a step
    return out;
  };
  for (const auto& [as_of, whole] : {std::pair{"0.18.2", false}, {"0.18.4", false}, {"0.18.5", true}}) {
    const auto in_bf16 = masters(Dtype::bfloat16, as_of);
    ASSERT_EQ(in_bf16.size(), 4u);
    // The third step goes on from the second, or from the start as the first did.
    const bool from_the_start = std::abs(in_bf16[2][0] - in_bf16[0][0]) < std::abs(in_bf16[2][0] - in_bf16[1][0]);
    EXPECT_EQ(!from_the_start, whole) << as_of << ": " << in_bf16[0][0] << " " << in_bf16[1][0] << " " << in_bf16[2][0];
  }
}

// ---- 0.19.8: norms that are not finite ------------------------------------------------------------------------------------------------------

struct Wrapped {
  std::uint32_t stage;
  Dtype dtype;
  bool fused;
  double second;  // gradient of the second step
};

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double squares_overflow = 0x1p100;  // finite in fp32 and bf16, and its square is in neither

std::pair<double, double> skipped_and_updated(const Wrapped& wrapped, const char* as_of) {
  Scenario s = of_stage(wrapped.stage, wrapped.dtype, as_of, {8});
  if (wrapped.fused) s.engine.optimizer.type = OptimizerType::adam;
  if (wrapped.dtype == Dtype::bfloat16) deepspeed_config(s).bf16.check_grad_overflow = true;
  s.script = {backward(), step(), backward(), step()};
  const Keeper seen = run(s, SecondIs(wrapped.second));
  EXPECT_TRUE(seen.errors.empty());
  return {seen.facts.at({0, 3, StepFact::skipped}), seen.facts.at({0, 3, StepFact::updated})};
}

TEST(norms, that_are_not_finite_skip_the_step_since_0_19_8) {
  const std::pair steps{0.0, 1.0}, skips{1.0, 0.0};
  for (const Wrapped& w : {Wrapped{1, Dtype::float32, false, infinite},
                           {2, Dtype::float32, false, squares_overflow},
                           {3, Dtype::float32, false, infinite},
                           {3, Dtype::bfloat16, false, infinite},
                           {2, Dtype::bfloat16, false, squares_overflow},
                           {0, Dtype::bfloat16, true, infinite},
                           {0, Dtype::bfloat16, true, squares_overflow},
                           {0, Dtype::bfloat16, false, squares_overflow}}) {
    EXPECT_EQ(skipped_and_updated(w, "0.19.7").second, 1.0) << w.stage << " " << w.second;
    EXPECT_EQ(skipped_and_updated(w, "0.19.8"), skips) << w.stage << " " << w.second;
  }
  EXPECT_EQ(skipped_and_updated({0, Dtype::float32, false, infinite}, "0.19.8"), steps) << "no wrapper, no rule";
  EXPECT_EQ(skipped_and_updated({3, Dtype::bfloat16, false, squares_overflow}, "0.19.8"), steps) << "the norm of stage 3 is in fp64, and finite";
  EXPECT_EQ(skipped_and_updated({0, Dtype::bfloat16, false, infinite}, "0.19.7"), skips) << "FP16_UnfusedOptimizer always did";
}

TEST(norms, that_are_not_finite_skip_nothing_in_bf16_without_check_grad_overflow_but_clip_to_nothing_since_0_19_8) {
  const auto applied = [](const char* as_of) {
    Scenario s = of_stage(2, Dtype::bfloat16, as_of, {8});
    deepspeed_config(s).bf16.check_grad_overflow = false;
    deepspeed_config(s).gradient_clipping = 0.25;
    s.script = {backward(), step(), backward(), step()};
    const Keeper seen = run(s, SecondIs(squares_overflow));
    EXPECT_EQ(seen.facts.at({0, 3, StepFact::updated}), 1.0);
    return seen.snapshots.at({0, 3, "single_partition_of_fp32_groups[0].grad"}).front();
  };
  EXPECT_EQ(std::round(squares_overflow / applied("0.19.7")), 4) << "the norm was masked by -1, the norm of which is 1";
  EXPECT_EQ(applied("0.19.8"), 0.0);
}

TEST(norms, of_a_skipped_step_are_reported_as_infinite_since_0_19_8) {
  for (const char* as_of : {"0.19.7", "0.19.8"}) {
    Scenario s = of_stage(2, Dtype::float16, as_of, {8});
    deepspeed_config(s).fp16 = {.enabled = true, .initial_scale_power = 4, .hysteresis = 1};
    s.script = {backward(), step(), backward(), step()};
    const Keeper seen = run(s, SecondIs(infinite));
    EXPECT_EQ(seen.facts.at({0, 3, StepFact::skipped}), 1.0);
    EXPECT_EQ(seen.facts.at({0, 3, StepFact::loss_scale}), 8.0);
    EXPECT_EQ(seen.facts.contains({0, 3, StepFact::gradient_norm}), as_of == std::string("0.19.8"));
  }
}

// ---- 0.19.8: experts ----------------------------------------------------------------------------------------------------------------------

Scenario with_experts(const char* as_of, std::uint32_t stage, Dtype dtype) {
  Scenario s = base_scenario(4, {}, dtype);
  deepspeed_config(s).zero.stage = stage;
  s.engine.as_of.base = as_of;
  s.engine.expert_parallel_size = 2;
  for (std::uint32_t layer = 0; layer < 4; ++layer) {
    s.parameters.push_back({"shared " + std::to_string(layer), 8, std::nullopt});
    for (std::uint32_t expert = 0; expert < 2; ++expert) {
      s.parameters.push_back({"expert " + std::to_string(layer) + " " + std::to_string(expert), 8, std::nullopt});
      s.parameters.back().expert = expert;
    }
  }
  s.script = {repeat(2, {backward(), step()})};
  return s;
}

TEST(experts, of_fp16_optimizer_stood_in_the_norm_by_their_masters_before_0_19_8) {
  for (const auto& [as_of, right] : {std::pair{"0.19.7", false}, {"0.19.8", true}}) {
    Scenario s = with_experts(as_of, 0, Dtype::bfloat16);
    deepspeed_config(s).gradient_clipping = 0.25;
    s.engine.optimizer = {.type = OptimizerType::adamw, .learning_rate = 0.125};
    EXPECT_EQ(classes(judge(s)).contains("wrong-norm"), !right) << as_of << ": " << sentences(judge(s));
  }
}

// Two stretches of one owner are reduced in a copy, which the owner by the wrong numbers copies back.
TEST(experts, reduced_to_their_owner_were_kept_by_its_number_among_all_ranks_before_0_19_8) {
  for (const auto& [as_of, right] : {std::pair{"0.19.7", false}, {"0.19.8", true}}) {
    Scenario s = with_experts(as_of, 2, Dtype::float32);
    EXPECT_EQ(sentences(judge(s)), "") << as_of;
    deepspeed_config(s).zero.use_multi_rank_bucket_allreduce = false;
    EXPECT_EQ(classes(judge(s)).contains("discarded-gradient"), !right) << as_of << ": " << sentences(judge(s));
    if (right) EXPECT_EQ(sentences(judge(s)), "");
  }
}

// ---- 0.19.8: a gradient of BF16_Optimizer is read from its accumulator -------------------------------------------------------------------------

TEST(set_gradient, of_bf16_optimizer_reads_each_owners_part_of_the_accumulator_since_0_19_8) {
  const auto after_setting = [](const char* as_of, std::uint32_t rank) {
    Scenario s = of_stage(1, Dtype::bfloat16, as_of, {8});
    deepspeed_config(s).grad_accum_dtype = Dtype::float32;
    deepspeed_config(s).bf16.immediate_grad_update = false;
    deepspeed_config(s).gradient_accumulation_steps = 2;
    s.script = {backward(), step(), set_of("w0", 2), backward(), step()};
    const Keeper seen = run(s);
    EXPECT_TRUE(seen.errors.empty());
    return seen.snapshots.at({rank, 2, "w0.grad"});
  };
  EXPECT_NE(after_setting("0.19.7", 0), after_setting("0.19.7", 1)) << "each rank doubles its own param.grad";
  EXPECT_EQ(after_setting("0.19.8", 0), after_setting("0.19.8", 1)) << "both have what the owners hold";
}

// Until then an owner's first parameter is looked for at the first place of the list, which has all of the group. Runs of 0.17.4, 0.18.9 and 0.19.1 do so.
TEST(set_gradient, of_bf16_optimizer_finds_that_of_another_parameter_before_0_19_8) {
  const auto run_of = [](const char* as_of, std::vector<std::uint32_t> sizes) {
    Scenario s = of_stage(1, Dtype::bfloat16, as_of, sizes);
    deepspeed_config(s).grad_accum_dtype = Dtype::float32;
    deepspeed_config(s).bf16.immediate_grad_update = false;
    s.script = {boundary(true), backward(), event(ScriptKind::engine_zero_grad), set_of("w1", 2)};
    return run(s);
  };
  for (const auto& [as_of, set] : {std::pair{"0.19.7", 0u}, {"0.19.8", 1u}}) {
    Keeper seen = run_of(as_of, {8, 8});
    EXPECT_TRUE(seen.errors.empty()) << as_of;
    std::vector<double> due = seen.snapshots.at({1, 2, "fp32_groups_gradients_flat[0]"});
    for (std::size_t i = 8 * set; i < 8 * set + 8; ++i) due[i] *= 2;
    EXPECT_EQ(seen.snapshots.at({1, 3, "fp32_groups_gradients_flat[0]"}), due) << as_of;
  }
  const Keeper seen = run_of("0.19.7", {4, 12});
  ASSERT_EQ(seen.errors.size(), 1u);
  EXPECT_EQ(seen.errors[0].rank, 1u) << "its eight elements of w1 are not those four of w0";
  EXPECT_EQ(seen.errors[0].type, "RuntimeError");
  EXPECT_TRUE(seen.deadlock_record) << "the other rank waits for it";
  const Keeper repeated = run_of("0.19.7", {1, 15});
  EXPECT_EQ(repeated.errors.size(), 2u) << "one element is read in place of eight, and neither rank can set what it has";
  EXPECT_FALSE(repeated.deadlock_record);
}

// ---- 0.19.6: a parameter without elements comes to no bucket ------------------------------------------------------------------------------------

// What the bucket has before it went to the host by then, and what comes behind it did not.
TEST(empty_parameters, end_a_reduction_at_their_place_in_the_bucket_before_0_19_6) {
  const auto master_gradient = [](const std::vector<std::string>& order) {
    Scenario s = of_stage(2, Dtype::float32, "0.19.5", {4, 0, 4});
    deepspeed_config(s).zero.offload_optimizer = OffloadDevice::cpu;
    s.after_error = AfterError::go_on;
    ScriptItem ordered = backward();
    ordered.order[1] = order;
    s.script = {boundary(true), ordered};
    const Keeper seen = run(s);
    EXPECT_EQ(seen.errors.size(), 1u);
    return seen.snapshots.at({1, 1, "single_partition_of_fp32_groups[0].grad"});
  };
  const std::vector<double> behind = master_gradient({"w2", "w1"}), before = master_gradient({"w1", "w2"});
  EXPECT_TRUE(std::all_of(behind.begin(), behind.end(), [](double g) { return g != 0; }));
  EXPECT_TRUE(std::all_of(before.begin(), before.end(), [](double g) { return g == 0; }));
}

// Where a parameter's place has an end behind its beginning. BF16_Optimizer at stage 0 of a pipeline divides too, and later stages have groups of their own.
TEST(empty_parameters, inside_a_partition_are_refused_by_each_wrapper_that_divides_before_0_19_6) {
  const auto refused_at = [](const std::vector<std::uint32_t>& sizes, std::uint32_t first_of_later_stage, const char* as_of) {
    Scenario s = of_stage(0, Dtype::bfloat16, as_of, sizes);
    s.engine.pipeline_stages = 2;
    s.world_size = 4;
    for (std::uint32_t p = first_of_later_stage; p < sizes.size(); ++p) s.parameters[p].pipeline_stage = 1;
    const auto wrapper = deepspeed::select_wrapper(s);
    return wrapper.ok() ? std::string() : wrapper.error().where;
  };
  EXPECT_EQ(refused_at({2, 0, 13, 9}, 3, "0.18.9"), "/parameters/1/numel");
  EXPECT_EQ(refused_at({9, 2, 0, 13}, 1, "0.18.9"), "/parameters/2/numel");
  EXPECT_EQ(refused_at({0, 2, 13, 9}, 3, "0.18.9"), "") << "it begins where a partition does";
  EXPECT_EQ(refused_at({2, 0, 13, 9}, 3, "0.19.6"), "");
  Scenario whole = of_stage(0, Dtype::bfloat16, "0.18.9", {2, 0, 13});
  EXPECT_TRUE(deepspeed::select_wrapper(whole).ok()) << "each rank has all of it";
}

}  // namespace
}  // namespace gradledger::testing
