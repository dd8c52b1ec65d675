// The three defects that this project grew from, at every world size from 2 to 8, gradient accumulation from 1 to 64 and every dtype: each
// is reported under its name, and its clean twin raises no alarm.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sim/frameworks/deepspeed/settings.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

const std::set<std::string> clean;

struct Point {
  std::uint32_t world = 2;
  std::uint32_t micro_batches = 1;
  Dtype dtype = Dtype::float32;
  std::vector<std::uint32_t> sizes{1};
  std::uint32_t windows = 1;
  std::uint64_t seed = 0;
};

Point any_point(const std::vector<Dtype>& dtypes) {
  Point p;
  p.world = *rc::gen::inRange(2u, 9u).as("world size");
  p.micro_batches = *rc::gen::weightedOneOf<std::uint32_t>({{3, rc::gen::inRange(1u, 9u)}, {1, rc::gen::inRange(9u, 65u)}}).as("micro-batches");
  p.dtype = *rc::gen::elementOf(dtypes).as("dtype");
  p.sizes = *rc::gen::nonEmpty(rc::gen::resize(4, rc::gen::container<std::vector<std::uint32_t>>(rc::gen::inRange(1u, 41u)))).as("sizes");
  p.windows = *rc::gen::inRange(1u, 4u).as("windows");
  if (p.micro_batches * p.world > 64) p.windows = 1;  // keeps the decoding of long windows short
  p.seed = *rc::gen::inRange<std::uint64_t>(0, 1000).as("seed");
  return p;
}

const std::vector<Dtype> every_dtype{Dtype::float32, Dtype::bfloat16, Dtype::float16};

void require(const Scenario& scenario, const Point& p, const std::set<std::string>& expected) {
  const ref::Verdict verdict = judge(scenario, p.seed);
  RC_LOG() << sentences(verdict);
  RC_ASSERT(classes(verdict) == expected);
  RC_ASSERT(verdict.ledger.elements > 0u);
}

// ---- open-instruct#1498: ga = 1, several backwards, no boundary call -----------------------------------------------------------------

Scenario open_instruct(const Point& p, std::uint32_t stage, bool toggles) {
  Scenario s = base_scenario(p.world, p.sizes, p.dtype);
  deepspeed_config(s).zero.stage = stage;
  s.script = {repeat(p.windows, toggles ? with_boundary_calls(p.micro_batches) : without_boundary_calls(p.micro_batches))};
  return s;
}

RC_GTEST_PROP(open_instruct_1498, stages_1_and_2_discard_all_but_the_last_micro_batch, ()) {
  const Point p = any_point(every_dtype);
  const std::uint32_t stage = *rc::gen::inRange(1u, 3u).as("stage");
  require(open_instruct(p, stage, false), p, p.micro_batches > 1 ? std::set<std::string>{"discarded-gradient"} : clean);
}

RC_GTEST_PROP(open_instruct_1498, toggling_the_boundary_heals_every_stage, ()) {
  const Point p = any_point(every_dtype);
  const std::uint32_t stage = *rc::gen::inRange(0u, 4u).as("stage");
  Scenario s = open_instruct(p, stage, true);
  if (stage == 0 && p.dtype == Dtype::float16) s.engine.as_of.switches = {{"fp16_st0_scale", "applied"}, {"unfused_reported_norm", "unscaled"}};  // defects of their own
  require(s, p, clean);
}

RC_GTEST_PROP(open_instruct_1498, stage_3_keeps_every_micro_batch_without_boundary_calls, ()) {
  const Point p = any_point(every_dtype);
  require(open_instruct(p, 3, false), p, clean);
}

// ---- DeepSpeed#7981: ga = 1, boundary on the last backward, CPU offload ----------------------------------------------------------------

Scenario offload(const Point& p, const char* as_of) {
  Scenario s = base_scenario(p.world, p.sizes, p.dtype);
  s.engine.as_of.base = as_of;
  deepspeed_config(s).zero.stage = 2;
  deepspeed_config(s).zero.offload_optimizer = OffloadDevice::cpu;
  s.script = {repeat(p.windows, with_boundary_calls(p.micro_batches))};
  return s;
}

RC_GTEST_PROP(deepspeed_7981, offload_loses_all_but_the_last_backward_before_the_fix, ()) {
  const Point p = any_point(every_dtype);
  require(offload(p, "before #7981"), p, p.micro_batches > 1 ? std::set<std::string>{"offload-loss"} : clean);
}

RC_GTEST_PROP(deepspeed_7981, offload_keeps_every_backward_after_the_fix, ()) {
  const Point p = any_point(every_dtype);
  require(offload(p, "#7981"), p, clean);
}

// ---- DeepSpeed#7985: BF16_Optimizer, boundary micro-batch accumulated after the all-reduce ---------------------------------------------

Scenario boundary_leak(const Point& p, const char* as_of) {
  Scenario s = base_scenario(p.world, p.sizes, Dtype::bfloat16);
  s.engine.as_of.base = as_of;
  deepspeed_config(s).gradient_accumulation_steps = p.micro_batches;
  deepspeed_config(s).zero.stage = 1;
  deepspeed_config(s).grad_accum_dtype = Dtype::float32;
  deepspeed_config(s).communication_data_type = p.dtype;  // the class exists for bf16 models alone; what varies is the wire
  s.script = {repeat(p.windows, managed(p.micro_batches))};
  return s;
}

RC_GTEST_PROP(deepspeed_7985, the_boundary_micro_batch_is_private_before_the_fix, ()) {
  const Point p = any_point(every_dtype);
  const ref::Verdict verdict = judge(boundary_leak(p, "before #7985"), p.seed);
  RC_LOG() << sentences(verdict);
  RC_ASSERT(classes(verdict) == std::set<std::string>{"boundary-leak"});
  // The bias of the window is (W-1)/W * 1/ga, whatever the wire rounds: a sum of W-1 differences of two quotients, over a sum of all.
  const double bias = (p.world - 1.0) / p.world / p.micro_batches;
  const double roundings = 4.0 * p.world * p.micro_batches;
  for (const ref::Finding& f : verdict.findings) RC_ASSERT(std::abs(f.lost_weight - bias) <= roundings * std::numeric_limits<double>::epsilon() / 2 * bias);
}

RC_GTEST_PROP(deepspeed_7985, ranks_agree_on_the_whole_window_after_the_fix, ()) {
  const Point p = any_point(every_dtype);
  require(boundary_leak(p, "#7985"), p, clean);
}

RC_GTEST_PROP(deepspeed_7985, immediate_grad_update_is_not_affected, ()) {
  const Point p = any_point(every_dtype);
  Scenario s = boundary_leak(p, "before #7985");
  deepspeed_config(s).bf16.immediate_grad_update = true;
  require(s, p, clean);
}

}  // namespace
}  // namespace gradledger::testing
