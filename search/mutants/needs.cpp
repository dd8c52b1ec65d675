// What a case must have for a fault to be reached. Whatever it has already is left as it was drawn.
#include <algorithm>
#include <utility>

#include "search/mutants/blocks.h"
#include "search/shrink/layouts.h"
#include "sim/frameworks/search_space.h"
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
  tuning_of(s).manage_windows(s);
}

// Where the loop owns its windows, all of them in place of the script.
bool wrote_loop(Scenario& s, std::uint32_t of_each) {
  const SearchSpace& space = search_space_of(s);
  if (space.calls(s)->manages_windows()) return false;
  space.write_loop({.windows = windows, .micro_batches = of_each}, s);
  return true;
}

}  // namespace

bool reduces_every_backward(const Scenario& s) {
  const auto contract = framework_of(s).contract(s);
  return contract.ok() && contract->reduces_every_backward;
}

std::function<void(Scenario&, EngineContext&)> has_defect(std::string_view fault) {
  return [fault](Scenario& s, EngineContext&) { tuning_of(s).set_defect(s, fault, true); };
}

// Ranks that all hold other parts of the model reduce nothing.
void several_ranks(Scenario& s) {
  if (s.world_size == 1) s.world_size = 2;
  if (s.layout && s.layout->size("dp") * s.layout->size("cp") == 1) drop_layout(s);
  if (s.world_size > 1 && s.engine.pipeline_stages == s.world_size) {
    drop_layout(s);
    s.engine.pipeline_stages = 1;
    for (Parameter& p : s.parameters) p.pipeline_stage = 0;
  }
  for (Parameter& p : s.parameters) p.numel = std::max(p.numel, std::uint64_t{2} * s.world_size);
}

void several_micro_batches(Scenario& s) {
  several_ranks(s);
  if (has_windows(s)) return;
  start_over(s);
  if (wrote_loop(s, micro_batches)) return;
  ScriptItem inner = item(ScriptKind::backward);
  inner.micro_batches = micro_batches - 1;
  s.script = {repeated_items(windows, {boundary(false), inner, boundary(true), item(ScriptKind::backward), item(ScriptKind::step)})};
}

void counted_micro_batches(Scenario& s) {
  several_ranks(s);
  start_over(s);
  if (wrote_loop(s, micro_batches)) return;
  tuning_of(s).count_windows(s, micro_batches);
  s.script = {repeated_items(windows * micro_batches, {item(ScriptKind::backward), item(ScriptKind::step)})};
}

void three_of_each(Scenario& s) {
  counted_micro_batches(s);
  s.world_size = 3;
  if (wrote_loop(s, 3)) return several_ranks(s);
  tuning_of(s).count_windows(s, 3);
  several_ranks(s);
  s.script.front().times = windows * 3;
}

void clipped(Scenario& s) {
  several_ranks(s);
  tuning_of(s).clip(s, 1.0 / 64);
}

void with_moments(Scenario& s) {
  several_micro_batches(s);
  s.engine.optimizer.type = OptimizerType::adam;
  for (OptimizerGroup& group : s.engine.param_groups) group.learning_rate.reset();
  s.engine.optimizer.learning_rate = 1.0;
}

void half_precision(Scenario& s) {
  several_micro_batches(s);
  tuning_of(s).set_model_dtype(s, Dtype::float16);
  tuning_of(s).set_accumulation_dtype(s, std::nullopt);
  tuning_of(s).set_loss_scale(s, {.initial = 16});
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
  tuning_of(s).overlap(s, true);
}

void wide_accumulation(Scenario& s) {
  several_micro_batches(s);
  tuning_of(s).set_model_dtype(s, Dtype::bfloat16);
  tuning_of(s).set_accumulation_dtype(s, Dtype::float32);
  tuning_of(s).set_wire_dtype(s, Dtype::float32);
}

}  // namespace gradledger::search
