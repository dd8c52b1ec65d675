#include "sim/frameworks/deepspeed/contract.h"

#include <algorithm>
#include <cmath>

#include "sim/frameworks/deepspeed/engines.h"
#include "sim/frameworks/deepspeed/history.h"
#include "sim/frameworks/loop_contract.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/scenario/layout.h"

namespace gradledger::deepspeed {
namespace {

// fp16 always; bf16 where check_grad_overflow says so, and at stages 1 and 2, where that key has its effect, unless it says no; fp32 never.
bool skips_nonfinite(const DeepSpeedConfig& config) {
  if (config.fp16.enabled) return true;
  return config.bf16.enabled && config.bf16.check_grad_overflow.value_or(config.zero.stage == 1 || config.zero.stage == 2);
}

// Some releases serve bf16 at stage 0 with BF16_Optimizer, each rank of which steps a part of the weights.
bool divides_the_optimizer(const Scenario& s) {
  const Result<Wrapper> wrapper = select_wrapper(s);
  return wrapper.ok() && *wrapper == Wrapper::bf16;
}

// Stage 0 has a scaler of its own, without hysteresis. DeepSpeed#6976 gave its rule of growth to that of ZeRO, which doubled a step earlier.
LossScalePolicy loss_scale(const Scenario& s) {
  const DeepSpeedConfig& config = deepspeed_config(s);
  const bool of_the_class = config.zero.stage > 0 && config.fp16.leaves_the_scaler_open() && !documents(s, Change::pr6976);
  const Fp16Config fp16 = of_the_class ? Fp16Config::of_the_class() : config.fp16;
  LossScalePolicy out;
  if (!config.fp16.enabled) return out;
  out.dynamic = fp16.loss_scale == 0;
  out.initial = out.dynamic ? std::ldexp(1.0, static_cast<int>(fp16.initial_scale_power)) : fp16.loss_scale;
  out.window = fp16.loss_scale_window;
  out.growth_lag = config.zero.stage == 0 || documents(s, Change::pr6976) ? 1 : 0;
  out.hysteresis = config.zero.stage == 0 ? 1 : fp16.hysteresis;
  out.consecutive_hysteresis = fp16.consecutive_hysteresis;
  out.minimum = fp16.min_loss_scale;
  return out;
}

ClipPolicy clip(const Scenario& s) {
  const bool experts = std::any_of(s.parameters.begin(), s.parameters.end(), [](const Parameter& p) { return p.expert.has_value(); });
  constexpr double guard = 1e-6;  // no tolerance: DeepSpeed's constant in the definition of clipping
  return {gradient_clipping_of(s), guard, s.engine.param_groups.size() > 1 || s.engine.pipeline_stages > 1 || experts || tensor_parallel_ranks(s) > 1};
}

std::vector<std::vector<std::uint32_t>> holders(const Scenario& s) {
  if (s.engine.pipeline_stages == 1 && s.engine.expert_parallel_size == 1) return {};
  std::vector<std::vector<std::uint32_t>> out(s.parameters.size());
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p)
    for (std::uint32_t r = 0; r < s.world_size; ++r)
      if (holds(s, r, p)) out[p].push_back(r);
  return out;
}

// Whether the script or the contract weighs contributions by more than one divisor.
bool states_weights(const Scenario& s) {
  const auto any = [](const auto& self, const std::vector<ScriptItem>& items) -> bool {
    return std::any_of(items.begin(), items.end(), [&](const ScriptItem& item) {
      return !item.weight.empty() || item.kind == ScriptKind::scale_gradients || item.kind == ScriptKind::clip || item.kind == ScriptKind::all_reduce ||
             item.kind == ScriptKind::finalize || item.kind == ScriptKind::restore || self(self, item.items);
    });
  };
  const bool in_a_group = s.contract.average_over != "world" && s.contract.average_over != "none";
  return s.contract.window == Window::marked || s.contract.normaliser > Normaliser::number || in_a_group || any(any, s.script);
}

// By rank, the number of its group; none where the framework's own average is meant, or a group that nobody named, which the timeline refuses.
std::vector<std::uint32_t> average_groups(const Scenario& s, const Groups& groups) {
  if (s.contract.average_over == "world" || !groups.contains(s.contract.average_over)) return {};
  std::vector<std::uint32_t> out(s.world_size);
  for (std::uint32_t r = 0; r < s.world_size; ++r) out[r] = groups.of(s.contract.average_over, r).front();
  return out;
}

}  // namespace

BoundaryRule boundary_rule(const DeepSpeedConfig& config, bool pipeline) { return {config.gradient_accumulation_steps, config.managed_gradient_accumulation, pipeline}; }

Result<Contract> resolve_contract(const Scenario& s) {
  const auto point = point_named(s.engine.as_of.base, s.engine.as_of.switches.empty() ? "/engine/as_of" : "/engine/as_of/base");
  if (!point) return point.error();
  const DeepSpeedConfig& config = deepspeed_config(s);
  Contract out;
  out.stated = s.contract;
  out.own_weights = states_weights(s);
  out.groups = named_groups(s);
  // A number alone replaces the framework's: what it documents and what the loop means are then the same question.
  out.divisor = s.contract.normaliser == Normaliser::number && !out.own_weights ? s.contract.divide_by : Rational(config.gradient_accumulation_steps);
  out.average_divisor = s.contract.average_over == "none" && !out.own_weights ? Rational(1) : averaging_quotient(s);
  out.average_group = average_groups(s, out.groups);
  out.holders = holders(s);
  if (tensor_parallel_ranks(s) > 1) lay_out(s, out);
  out.boundary = boundary_rule(config, s.engine.pipeline_stages > 1);
  out.replicates_reduced = config.zero.stage <= 1;
  out.reduces_every_backward = config.zero.stage >= 2;
  out.steps_own_copies = config.zero.stage == 0 && !divides_the_optimizer(s);
  out.accumulation = grad_accum_dtype_of(s);
  out.wire = communication_dtype_of(s);
  out.steps_scalar = config.gradient_accumulation_steps;
  out.predivide_scalar = config.gradient_predivide_factor;
  out.skips_nonfinite = skips_nonfinite(config);
  out.loss_scale = loss_scale(s);
  out.clip = clip(s);
  if (s.engine.param_groups.empty()) out.optimizers = {s.engine.optimizer};
  else
    for (std::uint32_t p = 0; p < s.parameters.size(); ++p) out.optimizers.push_back(s.engine.optimizer_of(p));
  return out;
}

}  // namespace gradledger::deepspeed
