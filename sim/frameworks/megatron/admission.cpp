#include "sim/frameworks/megatron/admission.h"

#include <algorithm>
#include <string>

#include "sim/frameworks/megatron/behaviour.h"
#include "sim/frameworks/megatron/engine_setup.h"
#include "sim/frameworks/megatron/parallel_groups.h"
#include "sim/frameworks/megatron/planned_buffers.h"
#include "sim/scenario/script_pointer.h"

namespace gradledger::megatron {
namespace {

using Problem = std::optional<InputError>;

Problem option_problem(const Scenario& s, const MegatronConfig& config, const Behaviour& behaviour) {
  const std::string ddp = "/engine/config/ddp/";
  const auto refused = [](const std::string& words) { return "Megatron-Core refuses this at initialisation: " + words; };
  if (config.ddp.average_in_collective && config.model.calculate_per_token_loss && behaviour.refuses_average_per_token)
    return InputError{ddp + "average_in_collective", refused("AssertionError: Cannot average in collective when calculating per-token loss!")};
  if (config.ddp.overlap_param_gather && !(config.ddp.use_distributed_optimizer && config.ddp.overlap_grad_reduce))
    return InputError{ddp + "overlap_param_gather", "needs use_distributed_optimizer and overlap_grad_reduce, as Megatron's arguments do; expected all three"};
  if (config.ddp.overlap_param_gather && !behaviour.gathers_all)
    return InputError{ddp + "overlap_param_gather", "is modelled from 0.9.0 on, where DistributedDataParallel gathers"};
  if (config.ddp.check_for_nan_in_grad && config.ddp.overlap_grad_reduce)
    return InputError{ddp + "check_for_nan_in_grad", "reads a norm in the middle of a backward with overlap_grad_reduce, which is not modelled; expected one of the two"};
  const bool experts = std::any_of(s.parameters.begin(), s.parameters.end(), [](const Parameter& p) { return p.expert.has_value(); });
  const bool several = config.ddp.num_distributed_optimizer_instances > 1;
  if (several && !behaviour.instances) return InputError{ddp + "num_distributed_optimizer_instances", "is known from 0.10.0 on; expected it left out"};
  if (several && experts) return InputError{ddp + "num_distributed_optimizer_instances", "is not modelled with experts; expected 1"};
  if (config.ddp.pad_buckets_for_high_nccl_busbw && !behaviour.pads_for_bandwidth)
    return InputError{ddp + "pad_buckets_for_high_nccl_busbw", "is known from 0.12.0 on; expected it left out"};
  if (several && !config.ddp.use_distributed_optimizer)
    return InputError{ddp + "num_distributed_optimizer_instances", "is more than 1; expected use_distributed_optimizer with it"};
  for (const auto& [name, attributes] : config.parameters)
    if (std::none_of(s.parameters.begin(), s.parameters.end(), [&](const Parameter& p) { return p.name == name; }))
      return InputError{"/engine/config/parameters/" + name, "names no parameter; expected one of /parameters"};
  return std::nullopt;
}

Problem model_problem(const Scenario& s) {
  bool learns = false;
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p) {
    const Parameter& parameter = s.parameters[p];
    const std::string where = "/parameters/" + std::to_string(p);
    learns |= parameter.has_gradient();
    if (parameter.tied_to) return InputError{where + "/tied_to", "is not modelled with Megatron-Core; expected one parameter"};
    if (parameter.on_side_stream) return InputError{where + "/on_side_stream", "is not modelled with Megatron-Core"};
  }
  if (!learns) return InputError{"/parameters", "are all frozen; expected at least one that is trained"};
  if (s.engine.sequence_parallel_size > 1) return InputError{"/engine/sequence_parallel_size", "is DeepSpeed's; expected a group \"cp\" in /groups"};
  if (!s.engine.param_groups.empty()) return InputError{"/engine/param_groups", "are not modelled with Megatron-Core"};
  return std::nullopt;
}

const char* foreign(ScriptKind kind) {
  switch (kind) {
    case ScriptKind::forward: return "is not modelled with Megatron-Core; expected backward, which runs its own forward";
    case ScriptKind::set_boundary: return "is DeepSpeed's; Megatron-Core has no boundaries";
    case ScriptKind::coalesce: return "is DeepSpeed's; expected no_sync";
    case ScriptKind::finalize: return R"(is DeepSpeed's; expected {"event": {"name": "finalize_model_grads"}})";
    case ScriptKind::set_gradient:
    case ScriptKind::unscale: return "is another framework's";
    case ScriptKind::scale_gradients:
    case ScriptKind::clip:
    case ScriptKind::all_reduce: return "is not modelled with Megatron-Core";
    case ScriptKind::backward:
    case ScriptKind::step:
    case ScriptKind::engine_zero_grad:
    case ScriptKind::optimizer_zero_grad:
    case ScriptKind::raise:
    case ScriptKind::no_sync:
    case ScriptKind::repeat:
    case ScriptKind::overflow:
    case ScriptKind::save:
    case ScriptKind::restore:
    case ScriptKind::of_framework: return nullptr;
  }
  return nullptr;
}

Problem script_problem(const std::vector<ScriptItem>& items, const std::string& where) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const ScriptItem& item = items[i];
    const std::string here = where + "/" + std::to_string(i);
    if (const char* why = foreign(item.kind)) return InputError{here, why};
    if (item.kind == ScriptKind::backward && (!item.scale_wrt_gas || item.phases != 1 || item.direct || item.past_scaler || item.sum_of != 1 || item.raises_after))
      return InputError{here + "/backward", "has an option that is another framework's; expected micro_batches, micro_batch, uses, order and weight"};
    if (Problem problem = script_problem(item.items, pointer_of_items(item, here))) return problem;
  }
  return std::nullopt;
}

}  // namespace

std::optional<InputError> megatron_refusal(const Scenario& scenario, const MegatronConfig& config) {
  const auto behaviour = behaviour_of(scenario.engine.as_of);
  if (!behaviour) return behaviour.error();
  if (Problem problem = option_problem(scenario, config, *behaviour)) return problem;
  if (Problem problem = model_problem(scenario)) return problem;
  if (Problem problem = parallel_problem(scenario, config.ddp.num_distributed_optimizer_instances)) return problem;
  return script_problem(scenario.script, "/script");
}

}  // namespace gradledger::megatron
