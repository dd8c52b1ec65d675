// What a case must have for a fault to be reached. Whatever it has already is left as it was drawn.
#include <algorithm>
#include <utility>

#include "search/mutants/blocks.h"
#include "search/draw/variants.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/load.h"

namespace gradledger::search {
namespace {

ScriptItem item(ScriptKind kind) {
  ScriptItem out;
  out.kind = kind;
  return out;
}

ScriptItem boundary(bool value) {
  ScriptItem out = item(ScriptKind::set_boundary);
  out.boundary = value;
  return out;
}

ScriptItem repeated_items(std::uint32_t times, std::vector<ScriptItem> items) {
  ScriptItem out = item(ScriptKind::repeat);
  out.times = times;
  out.items = std::move(items);
  return out;
}

constexpr std::uint32_t windows = 3, micro_batches = 4;

// Several windows that close, each of several micro-batches, and no block that holds a reduction back.
bool has_windows(const Scenario& s) {
  const auto timeline = make_timeline(s);
  if (!timeline.ok()) return false;
  std::uint32_t closed = 0;
  for (const Event& event : timeline->events) {
    closed += event.updates();
    if (!event.is<events::Backward>() && !event.is<events::Step>() && !event.is<events::SetBoundary>()) return false;
  }
  const auto several = [](const std::vector<std::uint32_t>& of_ranks) { return *std::min_element(of_ranks.begin(), of_ranks.end()) > 1; };
  return closed > 1 && closed == timeline->steps && std::all_of(timeline->micro_batches.begin(), timeline->micro_batches.end(), several);
}

void start_over(Scenario& s) {
  s.script.clear();
  s.contract = {};
  s.after_error = AfterError::stop;
  deepspeed_config(s).managed_gradient_accumulation = true;
}

}  // namespace

const std::vector<std::string_view> every_variant{"zero0", "zero1", "zero1-offload", "bf16-optimizer", "zero2", "zero2-offload", "zero3", "zero3-offload"};
const std::vector<std::string_view> all_but_bf16_optimizer{"zero0", "zero1", "zero1-offload", "zero2", "zero2-offload", "zero3", "zero3-offload"};
const std::vector<std::string_view> zero_variants{"zero1", "zero1-offload", "zero2", "zero2-offload", "zero3", "zero3-offload"};
const std::vector<std::string_view> offload_variants{"zero1-offload", "zero2-offload", "zero3-offload"};
const std::vector<std::string_view> device_variants{"zero0", "zero1", "bf16-optimizer", "zero2", "zero3"};
const std::vector<std::string_view> flat_variants{"zero1", "zero1-offload", "bf16-optimizer", "zero2", "zero2-offload"};
const std::vector<std::string_view> bucket_variants{"zero1", "zero1-offload", "zero2", "zero2-offload"};

void several_ranks(Scenario& s) {
  if (s.world_size == 1) s.world_size = 2;
  for (Parameter& p : s.parameters) p.numel = std::max(p.numel, 2 * s.world_size);
}

void several_micro_batches(Scenario& s) {
  several_ranks(s);
  if (has_windows(s)) return;
  start_over(s);
  ScriptItem inner = item(ScriptKind::backward);
  inner.micro_batches = micro_batches - 1;
  s.script = {repeated_items(windows, {boundary(false), inner, boundary(true), item(ScriptKind::backward), item(ScriptKind::step)})};
}

void counted_micro_batches(Scenario& s) {
  several_ranks(s);
  start_over(s);
  deepspeed_config(s).gradient_accumulation_steps = micro_batches;
  s.script = {repeated_items(windows * micro_batches, {item(ScriptKind::backward), item(ScriptKind::step)})};
}

void three_of_each(Scenario& s) {
  counted_micro_batches(s);
  s.world_size = deepspeed_config(s).gradient_accumulation_steps = 3;
  several_ranks(s);
  s.script.front().times = windows * 3;
}

void clipped(Scenario& s) {
  several_ranks(s);
  deepspeed_config(s).gradient_clipping = 1.0 / 64;
}

void with_moments(Scenario& s) {
  several_micro_batches(s);
  s.engine.optimizer.type = OptimizerType::adam;
  for (OptimizerGroup& group : s.engine.param_groups) group.learning_rate.reset();
  s.engine.optimizer.learning_rate = 1.0;
}

void half_precision(Scenario& s) {
  several_micro_batches(s);
  set_model_dtype(s, Dtype::float16);
  deepspeed_config(s).grad_accum_dtype.reset();
  deepspeed_config(s).fp16.loss_scale = 16;
}

void planted_overflow(Scenario& s) {
  half_precision(s);
  counted_micro_batches(s);
  s.engine.as_of.switches["invalid_norm"] = "applied";  // the norm would skip the step as well
  ScriptItem overflow = item(ScriptKind::overflow);
  overflow.ranks = {1};
  overflow.micro_batch = 1;
  const ScriptItem window = repeated_items(micro_batches, {item(ScriptKind::backward), item(ScriptKind::step)});
  s.script = {window, overflow, window, window};
}

void overlapping(Scenario& s) {
  several_micro_batches(s);
  deepspeed_config(s).zero.overlap_comm = true;
}

void wide_accumulation(Scenario& s) {
  several_micro_batches(s);
  set_model_dtype(s, Dtype::bfloat16);
  deepspeed_config(s).grad_accum_dtype = deepspeed_config(s).communication_data_type = Dtype::float32;
}

}  // namespace gradledger::search
