// What the engines do that a ledger does not show: which class serves a configuration, what is refused, and what goes over the wire.
// Values are held against recorded runs in tests/conformance.
#include <gtest/gtest.h>

#include "sim/base/limits.h"
#include "sim/frameworks/deepspeed/engine/loss_scaler.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/framework.h"
#include "tests/engine/releases.h"
#include "tests/support/scripted_engine.h"

namespace gradledger::testing {
namespace {

Scenario stage(std::uint32_t number, Dtype dtype = Dtype::float32) {
  Scenario s = base_scenario(2, {30, 21, 13}, dtype);
  deepspeed_config(s).zero.stage = number;
  s.script = with_boundary_calls(4);
  return s;
}

std::string selected(const Scenario& s) {
  const auto engine = select_engine(s);
  return engine ? std::string((*engine)->name) : "refused at " + engine.error().where;
}

TEST(selection, follows_stage_dtype_accumulation_and_offload) {
  EXPECT_EQ(selected(stage(0)), "torch optimizer");
  EXPECT_EQ(selected(stage(0, Dtype::float16)), "FP16_UnfusedOptimizer");
  EXPECT_EQ(selected(stage(0, Dtype::bfloat16)), "FP16_UnfusedOptimizer");
  EXPECT_EQ(selected(stage(1, Dtype::bfloat16)), "DeepSpeedZeroOptimizer");
  EXPECT_EQ(selected(stage(2)), "DeepSpeedZeroOptimizer");
  EXPECT_EQ(selected(stage(3)), "DeepSpeedZeroOptimizer_Stage3");
  Scenario s = stage(1, Dtype::bfloat16);
  deepspeed_config(s).grad_accum_dtype = Dtype::float32;
  EXPECT_EQ(selected(s), "BF16_Optimizer");
  s.engine.as_of.base = "before #7788";
  EXPECT_EQ(selected(s), "FP16_UnfusedOptimizer");
  s.engine.as_of.base = "before #7515";
  EXPECT_EQ(selected(s), "BF16_Optimizer");
  deepspeed_config(s).zero.offload_optimizer = OffloadDevice::cpu;
  EXPECT_EQ(selected(s), "DeepSpeedZeroOptimizer");
}

TEST(selection, of_a_pipeline_that_accumulates_in_bf16_without_zero) {
  Scenario s = stage(0, Dtype::bfloat16);
  s.world_size = 4;
  s.parameters[1].pipeline_stage = 1;
  s.engine.pipeline_stages = 2;
  deepspeed_config(s).grad_accum_dtype = Dtype::bfloat16;
  EXPECT_EQ(selected(s), "BF16_Optimizer");
  for (const char* as_of : {"#7515", "before #7788"}) {
    s.engine.as_of.base = as_of;
    EXPECT_EQ(selected(s), "FP16_UnfusedOptimizer") << as_of;
  }
  for (const char* as_of : {"before #7515", "before #6485"}) {
    s.engine.as_of.base = as_of;
    EXPECT_EQ(selected(s), "BF16_Optimizer") << as_of;
  }
  s.engine.pipeline_stages = 1;
  EXPECT_EQ(selected(s), "refused at /engine/config/data_types/grad_accum_dtype");
}

// The order that leaks the boundary micro-batch is that of an epilogue; a pipeline has an instruction for it.
TEST(pipelines, reduce_after_all_backwards_whatever_the_epilogue_does) {
  Scenario s = base_scenario(4, {30, 21}, Dtype::bfloat16);
  s.parameters[1].pipeline_stage = 1;
  s.engine.pipeline_stages = 2;
  s.engine.as_of.switches["order_bf16_epilogue"] = "reduce_then_accumulate";
  deepspeed_config(s).gradient_accumulation_steps = 2;
  s.script = {repeat(2, managed(2))};
  EXPECT_EQ(sentences(judge(s)), "");
  s = base_scenario(2, {30, 21}, Dtype::bfloat16);
  s.engine.as_of.switches["order_bf16_epilogue"] = "reduce_then_accumulate";
  deepspeed_config(s).grad_accum_dtype = Dtype::float32;
  deepspeed_config(s).zero.stage = 1;
  s.script = {repeat(2, managed(1))};
  EXPECT_EQ(classes(judge(s)), std::set<std::string>{"boundary-leak"});
}

TEST(selection, serves_unmanaged_accumulation_stage_by_stage_and_ignores_the_key_before) {
  Scenario s = stage(2);
  deepspeed_config(s).managed_gradient_accumulation = false;
  EXPECT_EQ(selected(s), "DeepSpeedZeroOptimizer");
  s.engine.as_of.base = "#8184";
  EXPECT_EQ(selected(s), "refused at /engine/config/managed_gradient_accumulation");
  s.engine.as_of.base = "before #8184";
  EXPECT_EQ(selected(s), "DeepSpeedZeroOptimizer");
  s.engine.as_of.base = "#8217";
  deepspeed_config(s).zero.offload_optimizer = OffloadDevice::cpu;
  EXPECT_EQ(selected(s), "refused at /engine/config/managed_gradient_accumulation");
  s.engine.as_of.base = "#8225";
  EXPECT_EQ(selected(s), "DeepSpeedZeroOptimizer");
  s = stage(1);
  deepspeed_config(s).managed_gradient_accumulation = false;
  deepspeed_config(s).zero.overlap_comm = true;
  EXPECT_EQ(selected(s), "refused at /engine/config/zero_optimization/overlap_comm");
}

TEST(selection, refuses_what_the_framework_refuses) {
  Scenario s = stage(2);
  deepspeed_config(s).gradient_predivide_factor = 2;
  EXPECT_EQ(selected(s), "refused at /engine/config/gradient_predivide_factor");
  deepspeed_config(s).zero.reduce_scatter = false;
  EXPECT_EQ(selected(s), "DeepSpeedZeroOptimizer");
  s = stage(3);
  deepspeed_config(s).prescale_gradients = true;
  EXPECT_EQ(selected(s), "refused at /engine/config/prescale_gradients");
  s = stage(3);
  deepspeed_config(s).gradient_allreduce_op = AllreduceOp::sum;
  EXPECT_EQ(selected(s), "refused at /engine/config/gradient_allreduce_op");
  s = stage(0, Dtype::bfloat16);
  deepspeed_config(s).grad_accum_dtype = Dtype::float32;
  EXPECT_EQ(selected(s), "refused at /engine/config/data_types/grad_accum_dtype");
  s.engine.as_of.base = "before #7788";
  EXPECT_EQ(selected(s), "FP16_UnfusedOptimizer");
  s = stage(0);
  deepspeed_config(s).zero.offload_optimizer = OffloadDevice::cpu;
  EXPECT_EQ(selected(s), "refused at /engine/config/zero_optimization/offload_optimizer");
}

TEST(selection, refuses_experts_and_pipelines_where_the_framework_does) {
  const auto with_experts = [](std::uint32_t of_stage) {
    Scenario s = stage(of_stage);
    s.parameters[0].expert = 0;
    return s;
  };
  EXPECT_EQ(selected(with_experts(2)), "DeepSpeedZeroOptimizer");
  EXPECT_EQ(selected(with_experts(3)), "refused at /engine/config/zero_optimization/stage");
  Scenario s = with_experts(2);
  deepspeed_config(s).zero.contiguous_gradients = false;
  EXPECT_EQ(selected(s), "refused at /engine/config/zero_optimization/contiguous_gradients");
  deepspeed_config(s).zero.offload_optimizer = OffloadDevice::cpu;  // which makes them contiguous
  EXPECT_EQ(selected(s), "DeepSpeedZeroOptimizer");
  s = with_experts(1);
  deepspeed_config(s).zero.contiguous_gradients = false;
  EXPECT_EQ(selected(s), "DeepSpeedZeroOptimizer");
  deepspeed_config(s).zero.reduce_scatter = false;
  EXPECT_EQ(selected(s), "refused at /engine/config/zero_optimization/reduce_scatter");
  for (std::uint32_t of_stage : {0u, 1u, 2u, 3u}) {
    s = stage(of_stage);
    s.engine.pipeline_stages = 2;
    s.parameters[1].pipeline_stage = 1;
    EXPECT_EQ(selected(s) == "refused at /engine/config/zero_optimization/stage", of_stage >= 2) << of_stage;
  }
}

// ---- collectives: kinds and payloads of one window of four backwards -----------------------------------------------------------------

std::vector<std::string> gradient_collectives(const Scenario& s) {
  std::vector<std::string> out;
  for (const CollectiveRecord& r : run(s).collectives)
    if (r.rank == 0 && r.purpose == Purpose::gradient) out.push_back(r.text());
  return out;
}

std::vector<std::string> times(int n, const std::string& text) { return std::vector<std::string>(static_cast<std::size_t>(n), text); }

TEST(traffic, stage_1_reduces_once_a_window_and_stages_2_and_3_once_a_backward) {
  EXPECT_EQ(gradient_collectives(stage(0)), times(1, "all_reduce sum of 64 fp32 (gradient)"));
  EXPECT_EQ(gradient_collectives(stage(1)), times(1, "all_reduce sum of 64 fp32 (gradient)"));
  EXPECT_EQ(gradient_collectives(stage(2)), times(4, "all_reduce sum of 64 fp32 (gradient)"));
  // Each parameter is padded to a multiple of the world.
  EXPECT_EQ(gradient_collectives(stage(3)), times(4, "reduce_scatter sum of 66 fp32 (gradient)"));
}

TEST(traffic, three_buckets_are_three_collectives) {
  for (std::uint32_t number : {1u, 2u, 3u}) {
    Scenario s = stage(number);
    deepspeed_config(s).zero.reduce_bucket_size = 30;
    const std::vector<std::string> calls = gradient_collectives(s);
    EXPECT_EQ(calls.size(), number == 1 ? 3u : 12u) << "stage " << number;
  }
}

TEST(traffic, buckets_fill_in_gradient_order_in_stage_2_and_in_parameter_order_in_stage_1) {
  Scenario s = stage(2);
  deepspeed_config(s).zero.reduce_bucket_size = 30;
  EXPECT_EQ(gradient_collectives(s)[0], "all_reduce sum of 13 fp32 (gradient)");
  deepspeed_config(s).zero.stage = 1;
  EXPECT_EQ(gradient_collectives(s)[0], "all_reduce sum of 30 fp32 (gradient)");
}

TEST(traffic, without_multi_rank_buckets_each_owner_gets_a_reduce) {
  Scenario s = stage(1);
  deepspeed_config(s).zero.use_multi_rank_bucket_allreduce = false;
  EXPECT_EQ(gradient_collectives(s), (std::vector<std::string>{"reduce sum of 32 fp32 with root 0 (gradient)", "reduce sum of 32 fp32 with root 1 (gradient)"}));
}

TEST(traffic, bf16_optimizer_sends_its_fp32_buffer_in_bf16_unless_told_otherwise) {
  Scenario s = stage(1, Dtype::bfloat16);
  deepspeed_config(s).grad_accum_dtype = Dtype::float32;
  EXPECT_EQ(gradient_collectives(s), times(1, "all_reduce sum of 64 bf16 (gradient)"));
  deepspeed_config(s).communication_data_type = Dtype::float32;
  EXPECT_EQ(gradient_collectives(s), times(1, "all_reduce sum of 64 fp32 (gradient)"));
}

TEST(traffic, a_bucket_was_reduced_whole_before_5268) {
  Scenario s = stage(1);
  deepspeed_config(s).zero.reduce_scatter = false;
  deepspeed_config(s).zero.reduce_bucket_size = 100;
  s.engine.as_of.base = "before #5268";
  EXPECT_EQ(gradient_collectives(s), times(1, "all_reduce sum of 100 fp32 (gradient)"));
  s.engine.as_of.base = "#5268";
  EXPECT_EQ(gradient_collectives(s), times(1, "all_reduce sum of 64 fp32 (gradient)"));
  s.engine.as_of.base = "before #5268";
  deepspeed_config(s).zero.reduce_bucket_size = limits::whole_bucket_numel_max + 1;
  EXPECT_EQ(selected(s), "refused at /engine/config/zero_optimization/reduce_bucket_size");
}

TEST(memory, a_lone_backward_allocates_no_host_accumulator_since_7981) {
  Scenario s = stage(2);
  deepspeed_config(s).zero.offload_optimizer = OffloadDevice::cpu;
  s.script = {repeat(3, with_boundary_calls(1))};
  const auto allocates = [&] {
    for (const auto& [name, allocated] : run(s).allocations)
      if (name.starts_with("accumulated_grads_in_cpu")) return true;
    return false;
  };
  EXPECT_FALSE(allocates());
  s.script = with_boundary_calls(2);
  EXPECT_TRUE(allocates());
}

TEST(memory, everything_that_a_window_allocates_is_released_or_held_for_good) {
  for (std::uint32_t number : {0u, 1u, 2u, 3u}) {
    for (bool overlap : {false, true}) {
      Scenario s = stage(number);
      deepspeed_config(s).zero.overlap_comm = overlap;
      s.script = {repeat(2, managed(1))};
      const auto live_after = [&](std::uint32_t windows) {
        s.script = {repeat(windows, with_boundary_calls(3))};
        std::map<std::string, int> live;
        for (const auto& [name, allocated] : run(s).allocations) live[name] += allocated ? 1 : -1;
        std::erase_if(live, [](const auto& entry) { return entry.second == 0; });
        return live;
      };
      EXPECT_EQ(live_after(2), live_after(5)) << "stage " << number << (overlap ? " overlap" : "");
    }
  }
}

// ---- loss scale -----------------------------------------------------------------------------------------------------------------------

TEST(loss_scale, zero_wrappers_count_hysteresis_and_raise_at_the_minimum) {
  Fp16Config config;
  config.initial_scale_power = 2;
  config.hysteresis = 2;
  config.loss_scale_window = 3;
  LossScaler scaler(config, true, ScaleGrowth::one_step_later);
  EXPECT_EQ(scaler.scale(), 4.0);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 4.0);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 2.0);
  for (int i = 0; i < 3; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 2.0);
  scaler.update(false);  // three good steps after the one that follows the overflow
  EXPECT_EQ(scaler.scale(), 4.0);
  config.initial_scale_power = 0;
  config.hysteresis = 1;
  LossScaler at_minimum(config, true, ScaleGrowth::one_step_later);
  EXPECT_THROW(at_minimum.update(true), FrameworkError);
  LossScaler unfused(config, false, ScaleGrowth::one_step_later);
  EXPECT_NO_THROW(unfused.update(true));
}

TEST(loss_scale, an_overflow_on_one_rank_makes_every_rank_skip_and_halves_the_scale) {
  for (std::uint32_t number : {1u, 2u, 3u}) {
    Scenario s = stage(number, Dtype::float16);
    deepspeed_config(s).fp16.initial_scale_power = 4;
    deepspeed_config(s).fp16.hysteresis = 1;
    s.script = {repeat(2, with_boundary_calls(1))};
    s.gradients.kind = GradientKind::values;
    std::vector<double> ones(64, 1.0), overflow(64, 1.0);
    overflow[5] = std::numeric_limits<double>::infinity();
    s.script[0].items[1].micro_batch = 0;
    s.gradients.values = std::make_shared<GivenValues>(GivenValues{{overflow, ones}});
    const auto timeline = make_timeline(s);
    HostExecutor executor(s, *timeline);
    const auto source = ref::value_source(s, *timeline, GradientKind::values, 0);
    Keeper seen;
    executor.run(*source, RunOptions{}, seen);
    ASSERT_FALSE(seen.facts.empty());
    for (const auto& [key, value] : seen.facts) {
      if (std::get<2>(key) == StepFact::gradient_norm) {
        EXPECT_EQ(value, std::numeric_limits<double>::infinity()) << "what a skipped step reports, stage " << number;
      }
      if (std::get<2>(key) == StepFact::skipped) {
        EXPECT_EQ(value, 1.0) << "every rank skips, stage " << number;
      }
    }
    EXPECT_TRUE(seen.errors.empty());
    // 16 in the first window, 8 in the second: what a finite element of rank 1 deposits, averaged or partitioned, shows the scale.
    std::set<double> magnitudes;
    for (const auto& [key, values] : seen.snapshots)
      for (double x : values)
        if (std::isfinite(x) && x != 0) magnitudes.insert(x);
    EXPECT_TRUE(magnitudes.contains(16.0) && magnitudes.contains(8.0)) << "stage " << number;
  }
}

// live-11: 256 + 1 + 1 + 1 stays 256 in bf16.
TEST(accumulation_dtype, of_stage_2_is_the_models_whatever_was_asked_for_up_to_0_19_7) {
  const auto largest_applied = [](const AsOf& as_of) {
    Scenario s = stage(2, Dtype::bfloat16);
    deepspeed_config(s).gradient_accumulation_steps = 4;
    deepspeed_config(s).grad_accum_dtype = Dtype::float32;
    s.engine.as_of = as_of;
    s.script = managed(4);
    s.gradients.kind = GradientKind::values;
    const std::vector<double> four_times_256(64, 1024.0), four(64, 4.0);
    const std::vector<std::vector<double>> large{four_times_256, four_times_256}, small{four, four};
    s.gradients.values = std::make_shared<GivenValues>(GivenValues{large, small, small, small});
    const auto timeline = make_timeline(s);
    HostExecutor executor(s, *timeline);
    const auto source = ref::value_source(s, *timeline, GradientKind::values, 0);
    Keeper seen;
    executor.run(*source, RunOptions{}, seen);
    double largest = 0;
    for (const auto& [key, values] : seen.snapshots)
      if (std::get<2>(key) == "averaged_gradients[0]")
        for (double x : values) largest = std::max(largest, x);
    return largest;
  };
  EXPECT_EQ(largest_applied({"0.19.7", {}}), 256.0);
  EXPECT_EQ(largest_applied({"0.19.7", {{"stage2_acc_dtype", "acc"}}}), 259.0);
  EXPECT_EQ(largest_applied({"0.19.8", {}}), 259.0);
}

}  // namespace
}  // namespace gradledger::testing
