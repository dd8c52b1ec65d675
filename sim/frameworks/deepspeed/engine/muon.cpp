#include "sim/frameworks/deepspeed/engine/muon.h"

#include <algorithm>
#include <string>

#include "sim/frameworks/deepspeed/settings.h"

namespace gradledger {

void take_into_momentum(ProgramWriter& w, TensorTable& tensors, Slice momentum, Slice gradient, double keeps, double divisor) {
  if (momentum.numel == 0) return;
  const Tensor share = tensors.allocate(w, "share of the momentum", w.declaration(momentum.buffer).dtype, momentum.numel);
  w.copy(share.slice, gradient);
  w.multiply(share.slice, (1 - keeps) / divisor);
  w.multiply(momentum, keeps);
  w.accumulate(momentum, share.slice);
  tensors.drop(w, share);
}

bool has_item(const std::vector<ScriptItem>& items, ScriptKind kind) {
  return std::any_of(items.begin(), items.end(), [kind](const ScriptItem& item) { return item.kind == kind || has_item(item.items, kind); });
}

namespace deepspeed {
namespace {

InputError refused_with_muon(std::string where, std::string reason) {
  return {"/engine/config" + std::move(where), "DeepSpeed refuses this at initialisation: " + std::move(reason)};
}

InputError not_modelled(std::string where, std::string what) { return {std::move(where), std::move(what) + " is not modelled with Muon"}; }

std::optional<InputError> stage_refusal(const DeepSpeedConfig& config, const Behaviour& behaviour) {
  const char* where = "/zero_optimization/stage";
  if (config.zero.stage == 0) return InputError{"/engine/config" + std::string(where), "Muon is modelled at stages 1 to 3; expected one of these"};
  if (behaviour.muon_stages == MuonStages::none) return InputError{"/engine/as_of", "has no Muon yet; expected 0.17.6 or later"};
  if (config.zero.stage == 3 && behaviour.muon_stages == MuonStages::up_to_2)
    return InputError{"/engine/as_of", "does not serve Muon at stage 3 yet; expected 0.18.9 or later, or stage 1 or 2"};
  if (config.zero.stage == 3 && config.zero.reduce_scatter)
    return refused_with_muon("/zero_optimization/reduce_scatter", "stage 3 needs whole gradients for Muon (ValueError); expected false");
  if (config.zero.stage < 3 && config.zero.reduce_scatter && behaviour.muon_reduce_scatter == MuonReduceScatter::refused)
    return refused_with_muon("/zero_optimization/reduce_scatter", "stages 1 and 2 need whole gradients for Muon (ValueError); expected false");
  return std::nullopt;
}

// Ranks orthogonalized a matrix each, and gathered what they had made into tensors of one shape.
bool alike(const std::vector<Parameter>& parameters) {
  return std::all_of(parameters.begin(), parameters.end(), [&](const Parameter& p) { return p.numel == parameters.front().numel; });
}

// The gradient, its accumulator, the wire and the momentum share a dtype here. Stage 3 without a contiguous bucket, or with a parameter larger than
// it, took that gradient past Muon.
std::optional<InputError> config_not_modelled(const Scenario& s, const Behaviour& behaviour) {
  const DeepSpeedConfig& config = deepspeed_config(s);
  const std::string where = "/engine/config";
  if (config.offloads_optimizer()) return not_modelled(where + "/zero_optimization/offload_optimizer", "offload");
  if (config.offloads_parameters()) return not_modelled(where + "/zero_optimization/offload_param", "offload");
  if (grad_accum_dtype_of(s) != s.model_dtype) return not_modelled(where + "/data_types/grad_accum_dtype", "another dtype than the model's");
  if (communication_dtype_of(s) != s.model_dtype) return not_modelled(where + "/communication_data_type", "another dtype than the model's");
  if (!config.zero.use_multi_rank_bucket_allreduce) return not_modelled(where + "/zero_optimization/use_multi_rank_bucket_allreduce", "false");
  if (config.zero.stage < 3) return std::nullopt;
  if (!config.zero.contiguous_gradients) return not_modelled(where + "/zero_optimization/contiguous_gradients", "false at stage 3");
  if (behaviour.muon_takes_in == MuonTakesIn::each_reduction && s.world_size > 1 && !alike(s.parameters))
    return InputError{"/parameters", "differ in size, which stage 3 raises at with Muon before 0.19.8 (RuntimeError); expected matrices of one size"};
  for (const Parameter& p : s.parameters)
    if (p.numel > config.zero.reduce_bucket_size) return not_modelled(where + "/zero_optimization/reduce_bucket_size", "a bucket smaller than a parameter at stage 3");
  return std::nullopt;
}

// Stage 3: without fp16 the norm of what Muon made skips the step; in 0.19.7 a matrix is passed over where its gradient is not finite.
bool infinities_are_modelled(const DeepSpeedConfig& config, const Behaviour& behaviour) {
  const bool passed_over = behaviour.muon_staging != MuonStaging::none && behaviour.muon_takes_in == MuonTakesIn::each_reduction;
  return config.zero.stage < 3 || (config.fp16.enabled && !passed_over);
}

}  // namespace

std::optional<InputError> muon_refusal(const Scenario& s, const Behaviour& behaviour) {
  if (!uses_muon(s)) return std::nullopt;
  if (auto error = stage_refusal(deepspeed_config(s), behaviour)) return error;
  if (auto error = config_not_modelled(s, behaviour)) return error;
  if (s.engine.pipeline_stages > 1) return not_modelled("/engine/pipeline_stages", "a pipeline");
  if (s.engine.expert_parallel_size > 1) return not_modelled("/engine/expert_parallel_size", "a mixture of experts");
  if (s.gradients.kind == GradientKind::mlp) return not_modelled("/gradients", "a network, whose gradients follow from the weights,");
  if (has_item(s.script, ScriptKind::set_gradient)) return not_modelled("/script", "set_gradient");
  if (has_item(s.script, ScriptKind::overflow) && !infinities_are_modelled(deepspeed_config(s), behaviour))
    return not_modelled("/script", "an infinite gradient at stage 3 without fp16, or in 0.19.7,");
  return std::nullopt;
}

}  // namespace deepspeed
}  // namespace gradledger
