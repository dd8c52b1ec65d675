#include "sim/frameworks/megatron/admission.h"

#include <algorithm>
#include <set>
#include <string>

#include "sim/frameworks/megatron/behaviour.h"
#include "sim/frameworks/megatron/engine_setup.h"
#include "sim/frameworks/megatron/events.h"
#include "sim/frameworks/megatron/parallel_groups.h"
#include "sim/frameworks/megatron/planned_buffers.h"
#include "sim/scenario/layout.h"
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
  if (several && config.ddp.average_in_collective && behaviour.refuses_average_of_instances)
    return InputError{ddp + "average_in_collective", refused("AssertionError, of the scaling factor, with several instances of the distributed optimizer")};
  for (const auto& [name, attributes] : config.parameters)
    if (std::none_of(s.parameters.begin(), s.parameters.end(), [&](const Parameter& p) { return p.name == name; }))
      return InputError{"/engine/config/parameters/" + name, "names no parameter; expected one of /parameters"};
  return std::nullopt;
}

// What tensor-parallel ranks have of the model.
Problem share_problem(const Scenario& s) {
  bool laid = !stated_sets(s, "tp").empty();
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p) {
    const Parameter& parameter = s.parameters[p];
    const std::string usual = parameter.expert && !stated_sets(s, "etp").empty() ? "etp" : "tp", where = parameter_pointer(s, p);
    for (const auto& [key, group] : {std::pair{"/sharded_over", parameter.part ? parameter.part->over : ""}, std::pair{"/summed_over", parameter.summed_over},
                                     std::pair{"/averaged_over", parameter.averaged_over}}) {
      if (!group.empty() && group != usual) return InputError{where + key, "is \"" + group + "\"; expected \"" + usual + "\", over which Megatron-Core cuts and reduces it"};
    }
    if (parameter.expert && !parameter.part && !stated_sets(s, usual).empty() && stated_sets(s, usual).front().size() > 1)
      return InputError{where, "is an expert's, and lies over several ranks of " + usual + "; expected sharded_over \"" + usual + "\", as Megatron-Core cuts experts"};
    laid |= parameter.part.has_value();
  }
  if (laid && s.gradients.kind == GradientKind::mlp) return InputError{"/gradients/kind", "is \"mlp\", whose backward no tensor-parallel ranks share; expected another"};
  return std::nullopt;
}

Problem chunk_names_problem(const Scenario& s, const ScheduleOptions& schedule, const std::string& where) {
  std::set<std::string> in_chunks;
  for (std::size_t c = 0; c < schedule.model_chunks.size(); ++c)
    for (const std::string& name : schedule.model_chunks[c]) {
      if (std::none_of(s.parameters.begin(), s.parameters.end(), [&](const Parameter& p) { return p.name == name; }))
        return InputError{where + "/" + std::to_string(c), "names \"" + name + "\", which is no parameter; expected one of /parameters"};
      if (!in_chunks.insert(name).second) return InputError{where + "/" + std::to_string(c), "names \"" + name + "\" again; expected each parameter in one chunk"};
    }
  for (const Parameter& p : s.parameters)
    if (!in_chunks.contains(p.name)) return InputError{where, "leaves out \"" + p.name + "\"; expected each parameter in one chunk"};
  return std::nullopt;
}

// Interleaved, of several chunks of the model.
Problem chunks_problem(const Scenario& s, const MegatronConfig& config, const Behaviour& behaviour) {
  const ScheduleOptions& schedule = *config.schedule;
  const std::string where = "/engine/config/schedule/", chunks = where + "model_chunks", size = where + "microbatch_group_size_per_vp_stage";
  const std::uint32_t stages = s.engine.pipeline_stages, group = schedule.group_size(stages), rest = schedule.num_microbatches % group;
  if (stages == 1) return InputError{chunks, "are of a pipeline; expected pipeline_stages above 1, or no chunks"};
  if (Problem problem = chunk_names_problem(s, schedule, chunks)) return problem;
  if (config.ddp.overlap_param_gather) return InputError{chunks, "are not modelled with overlap_param_gather"};
  if (config.model.calculate_per_token_loss || schedule.loss != LossReturns::mean)
    return InputError{chunks, "are not modelled with losses that are sums over tokens; expected a mean"};
  for (const auto& [name, attributes] : config.parameters)
    if (attributes.shared_embedding) return InputError{chunks, "are not modelled with a shared embedding, which is in the first chunk of one stage and in the last of another"};
  if (!behaviour.groups_of_any_size) {
    if (schedule.microbatch_group_size_per_vp_stage) return InputError{size, "is known from 0.10.0 on; expected it left out"};
    if (rest != 0) return InputError{where + "num_microbatches", "is no multiple of the stages, which Megatron-Core refuses before 0.10.0"};
  }
  if (group > schedule.num_microbatches || group < stages)
    return InputError{size, "is " + std::to_string(group) + "; Megatron-Core wants it from the number of stages to num_microbatches"};
  if (rest > 0 && rest < stages)
    return InputError{size, "leaves a last group of " + std::to_string(rest) + " micro-batches; Megatron-Core wants none, or as many as there are stages"};
  return std::nullopt;
}

Problem schedule_problem(const Scenario& s, const MegatronConfig& config, const Behaviour& behaviour) {
  if (!config.schedule) return std::nullopt;
  const std::string where = "/engine/config/schedule/";
  if (config.schedule->grad_sync_func && !config.ddp.overlap_grad_reduce)
    return InputError{where + "grad_sync_func", "is given with overlap_grad_reduce alone, as Megatron's arguments have it; expected both"};
  if (config.schedule->interleaved()) return chunks_problem(s, config, behaviour);
  if (config.schedule->microbatch_group_size_per_vp_stage)
    return InputError{where + "microbatch_group_size_per_vp_stage", "is of an interleaved schedule; expected model_chunks with it"};
  return std::nullopt;
}

Problem model_problem(const Scenario& s) {
  bool learns = false;
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p) {
    const Parameter& parameter = s.parameters[p];
    const std::string where = parameter_pointer(s, p);
    learns |= parameter.has_gradient();
    if (parameter.tied_to) return InputError{where + "/tied_to", "is not modelled with Megatron-Core; expected one parameter"};
    if (parameter.on_side_stream) return InputError{where + "/on_side_stream", "is not modelled with Megatron-Core"};
  }
  if (!learns) return InputError{"/parameters", "are all frozen; expected at least one that is trained"};
  if (auto problem = share_problem(s)) return problem;
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

// A schedule is called by every rank, and has blocks of its own.
Problem call_problem(const ScriptItem& item, const MegatronConfig& config, bool in_a_block, const std::string& here) {
  if (item.kind != ScriptKind::of_framework || item.event.name != schedule_event) return std::nullopt;
  if (!config.schedule) return InputError{here + "/event", "calls a schedule, and /engine/config has none; expected \"schedule\" in it"};
  if (!item.ranks.empty()) return InputError{here + "/event/ranks", "leave out ranks that the others' pipelines wait for; expected all ranks"};
  if (in_a_block) return InputError{here + "/event", "stands in no_sync, which a schedule enters and leaves by itself; expected it behind the block"};
  return std::nullopt;
}

Problem script_problem(const std::vector<ScriptItem>& items, const MegatronConfig& config, bool in_a_block, const std::string& where) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const ScriptItem& item = items[i];
    const std::string here = where + "/" + std::to_string(i);
    if (const char* why = foreign(item.kind)) return InputError{here, why};
    if (item.kind == ScriptKind::backward && (!item.scale_wrt_gas || item.phases != 1 || item.direct || item.past_scaler || item.sum_of != 1 || item.raises_after))
      return InputError{here + "/backward", "has an option that is another framework's; expected micro_batches, micro_batch, uses, order and weight"};
    if (Problem problem = call_problem(item, config, in_a_block, here)) return problem;
    if (Problem problem = script_problem(item.items, config, in_a_block || item.kind == ScriptKind::no_sync, pointer_of_items(item, here))) return problem;
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
  if (Problem problem = schedule_problem(scenario, config, *behaviour)) return problem;
  return script_problem(scenario.script, config, false, "/script");
}

}  // namespace gradledger::megatron
