// Scenarios built in code, for tests that vary what a file cannot.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "ref/oracle.h"
#include "sim/execution/host_executor.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/framework.h"
#include "sim/load.h"

namespace gradledger::testing {

inline ScriptItem event(ScriptKind kind) { return item_of(kind); }

inline ScriptItem backward(std::uint32_t micro_batches = 1) {
  ScriptItem item = event(ScriptKind::backward);
  item.micro_batches = micro_batches;
  return item;
}

inline ScriptItem boundary(bool value) {
  ScriptItem item = event(ScriptKind::set_boundary);
  item.boundary = value;
  return item;
}

inline ScriptItem set_of(const std::string& parameter, double factor, bool local = false) {
  ScriptItem item = event(ScriptKind::set_gradient);
  item.uses = {parameter};
  item.factor = factor;
  item.local = local;
  return item;
}

inline ScriptItem step() { return event(ScriptKind::step); }

inline ScriptItem overflow(std::uint32_t rank, std::uint32_t micro_batch) {
  ScriptItem item = event(ScriptKind::overflow);
  item.ranks = {rank};
  item.micro_batch = micro_batch;
  return item;
}

inline ScriptItem repeat(std::uint32_t times, std::vector<ScriptItem> items) {
  ScriptItem item = event(ScriptKind::repeat);
  item.times = times;
  item.items = std::move(items);
  return item;
}

// n backwards, every one of them a boundary when gradient_accumulation_steps is 1.
inline std::vector<ScriptItem> without_boundary_calls(std::uint32_t n) { return {backward(n), step()}; }

// The override false for all but the last of n backwards.
inline std::vector<ScriptItem> with_boundary_calls(std::uint32_t n) {
  if (n == 1) return {boundary(true), backward(), step()};
  return {boundary(false), backward(n - 1), boundary(true), backward(), step()};
}

// step() after each of n backwards: the counter decides.
inline std::vector<ScriptItem> managed(std::uint32_t n) { return {repeat(n, {backward(), step()})}; }

inline Scenario base_scenario(std::uint32_t world, const std::vector<std::uint32_t>& sizes, Dtype dtype) {
  Scenario s;
  s.name = "test";
  s.world_size = world;
  for (std::size_t i = 0; i < sizes.size(); ++i) s.parameters.push_back({"w" + std::to_string(i), sizes[i], std::nullopt});
  s.model_dtype = dtype;
  deepspeed_config(s).bf16.enabled = dtype == Dtype::bfloat16;
  deepspeed_config(s).fp16.enabled = dtype == Dtype::float16;
  deepspeed_config(s).gradient_clipping = 0.0;
  return s;
}

// Stage 1 on 2 ranks, 4 micro-batches, 2 windows: right, until somebody lies.
inline Scenario honest(Dtype dtype = Dtype::bfloat16, std::uint32_t world = 2) {
  Scenario s = base_scenario(world, {30, 21, 13}, dtype);
  deepspeed_config(s).zero.stage = 1;
  deepspeed_config(s).gradient_accumulation_steps = 4;
  s.script = {repeat(2, managed(4))};
  return s;
}

inline ref::Verdict judge(const Scenario& scenario, std::uint64_t seed = 0) {
  const auto refused = admission_error(scenario);
  expects(!refused, "a test's scenario is admitted");
  const auto timeline = make_timeline(scenario);
  expects(timeline.ok(), "a test's scenario has a timeline");
  HostExecutor producer(scenario, *timeline);
  ref::OracleOptions options;
  options.seed = seed;
  options.schedule.seed = seed;
  return ref::judge(scenario, *timeline, producer, options);
}

inline std::set<std::string> classes(const ref::Verdict& verdict) {
  std::set<std::string> out;
  for (const ref::Finding& f : verdict.findings) out.insert(std::string(name_of(f.finding)));
  return out;
}

inline std::string sentences(const ref::Verdict& verdict) {
  std::string out;
  for (const ref::Finding& f : verdict.findings) out += f.sentence + "\n";
  return out;
}

}  // namespace gradledger::testing
