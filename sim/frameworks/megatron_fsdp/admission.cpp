#include "sim/frameworks/megatron_fsdp/admission.h"

#include <algorithm>
#include <string>

#include "sim/frameworks/loop_admission.h"
#include "sim/frameworks/megatron_fsdp/behaviour.h"
#include "sim/frameworks/megatron_fsdp/methods.h"
#include "sim/scenario/script_pointer.h"

namespace gradledger::megatron_fsdp {
namespace {

using Problem = std::optional<InputError>;

std::string at_initialisation(const std::string& words) { return "Megatron-FSDP refuses this at initialisation: " + words; }

bool has_units(const Scenario& s, const MegatronFsdpConfig& config) {
  const std::vector<std::uint32_t> unit_of = module_of_parameters(s, config.wrap, config.units);
  return std::any_of(unit_of.begin(), unit_of.end(), [](std::uint32_t unit) { return unit != 0; });
}

Problem option_problem(const Scenario& s, const MegatronFsdpConfig& config, const Behaviour& behaviour) {
  const std::string options = "/engine/config/";
  if (Problem problem = units_problem(s, config.units)) return problem;
  if (Problem problem = mesh_problem(s, config.mesh)) return problem;
  if (config.average_in_collective && !behaviour.averages_in_collective)
    return InputError{options + "average_in_collective", at_initialisation("AttributeError: 'NoneType' object has no attribute 'size'")};
  if (config.zero_dp_strategy == Strategy::optim_grads_params && !has_units(s, config))
    return InputError{options + "units", at_initialisation("ZeroDivisionError: integer division or modulo by zero")};
  if (config.outer_sharding && config.zero_dp_strategy != Strategy::optim_grads_params)
    return InputError{options + "outer_dp_sharding_strategy", "needs optim_grads_params, as Megatron-FSDP says at initialisation; expected it as zero_dp_strategy"};
  if (config.outer_sharding && !config.mesh) return InputError{options + "outer_dp_sharding_strategy", "shards over what is outside of a shard; expected mesh"};
  if (config.mesh && config.zero_dp_strategy == Strategy::no_shard)
    return InputError{options + "mesh", "is refused with no_shard by DTensor in the optimizer's first step; expected a strategy that shards"};
  if (config.mesh && !config.overlap_grad_reduce) return InputError{options + "overlap_grad_reduce", "is not modelled with a mesh; expected true"};
  if (config.shards_gradients() && !config.overlap_grad_reduce)
    return InputError{options + "overlap_grad_reduce", "is switched on by Megatron-FSDP where gradients are sharded; expected it left out"};
  const MixedPrecision& precision = config.mixed_precision;
  if (precision.grad_comm_dtype && !behaviour.has_grad_comm_dtype) return InputError{options + "mixed_precision/grad_comm_dtype", "is known from 0.4.0 on; expected it left out"};
  if (precision.main_params_dtype) return std::nullopt;
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p)
    if (precision.main_grads_dtype.value_or(s.dtype_of(p)) != s.dtype_of(p))
      return InputError{options + "mixed_precision/main_grads_dtype", "is another dtype than that of weights that are stepped themselves; expected main_params_dtype with it"};
  return std::nullopt;
}

constexpr const char* left_out = "leaves parameters out of backwards, which is modelled from 0.3.0 on; expected all of them";

// Weights of another dtype than fp32 are stepped in fp32, unless the configuration says otherwise.
Problem model_problem_of(const Scenario& s, const MegatronFsdpConfig& config, const Behaviour& behaviour) {
  Scenario stepped = s;
  if (config.mixed_precision.main_params_dtype) {
    stepped.model_dtype = Dtype::float32;
    for (Parameter& p : stepped.parameters) p.dtype.reset();
  }
  if (Problem problem = model_problem(stepped, "Megatron-FSDP")) return problem;
  bool learns = false;
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p) {
    learns |= s.parameters[p].has_gradient();
    if (!s.parameters[p].trainable && !behaviour.takes_frozen)
      return InputError{"/parameters/" + std::to_string(p) + "/trainable", at_initialisation("RuntimeError: cannot register a hook on a tensor that doesn't require gradient")};
    if (s.parameters[p].used_by && !behaviour.optim_scatters) return InputError{"/parameters/" + std::to_string(p) + "/used_by", left_out};
    if (s.dtype_of(p) != Dtype::float32 && s.dtype_of(p) != Dtype::bfloat16)
      return InputError{s.parameters[p].dtype ? "/parameters/" + std::to_string(p) + "/dtype" : "/model_dtype",
                        "is not modelled with Megatron-FSDP; expected \"fp32\" or \"bf16\""};
  }
  return learns ? std::nullopt : Problem(InputError{"/parameters", "are all frozen; expected at least one that is trained"});
}

Problem script_problem(const Scenario& s, const std::vector<ScriptItem>& items, const std::string& where, bool in_no_sync, const Behaviour& behaviour) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const ScriptItem& item = items[i];
    const std::string here = where + "/" + std::to_string(i);
    if (Problem problem = item_problem(s, item, here, "Megatron-FSDP", false)) return problem;
    if (item.kind == ScriptKind::no_sync && in_no_sync) return InputError{here, "stands in another; Megatron-FSDP has a flag, which the inner one would put back"};
    if (item.kind == ScriptKind::forward) return InputError{here, "is not modelled with Megatron-FSDP; expected backward, which runs its own forward"};
    if (item.kind == ScriptKind::clip) return InputError{here, "is not modelled with Megatron-FSDP"};
    if (item.kind == ScriptKind::all_reduce && item.reduced == Reduced::gradients)
      return InputError{here + "/all_reduce", "adds up shards of different elements; expected a scalar"};
    if (item.kind == ScriptKind::backward && (item.sum_of != 1 || item.raises_after))
      return InputError{here + "/backward", "has sum_of or raises_after, which is not modelled with Megatron-FSDP"};
    if (!item.uses.empty() && !behaviour.optim_scatters) return InputError{here + "/backward/uses", left_out};
    if (Problem problem = script_problem(s, item.items, pointer_of_items(item, here), in_no_sync || item.kind == ScriptKind::no_sync, behaviour)) return problem;
  }
  return std::nullopt;
}

struct Switches {
  bool block = false, method = false;

  void look_at(const std::vector<ScriptItem>& items) {
    for (const ScriptItem& item : items) {
      block |= item.kind == ScriptKind::no_sync;
      method |= item.kind == ScriptKind::of_framework && item.event.name == auto_sync_event;
      look_at(item.items);
    }
  }
};

}  // namespace

std::optional<InputError> megatron_fsdp_refusal(const Scenario& scenario, const MegatronFsdpConfig& config) {
  const auto behaviour = behaviour_of(scenario.engine.as_of);
  if (!behaviour) return behaviour.error();
  if (Problem problem = option_problem(scenario, config, *behaviour)) return problem;
  if (Problem problem = model_problem_of(scenario, config, *behaviour)) return problem;
  return script_problem(scenario, scenario.script, "/script", false, *behaviour);
}

std::optional<InputError> not_judged(const Scenario& scenario) {
  Switches switches;
  switches.look_at(scenario.script);
  if (switches.block && switches.method)
    return InputError{"/script", "has no_sync and set_model_auto_sync, each of which sets what another reads: it is replayed from recordings and not judged; expected one of them"};
  return std::nullopt;
}

}  // namespace gradledger::megatron_fsdp
