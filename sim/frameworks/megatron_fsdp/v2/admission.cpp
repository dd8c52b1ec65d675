#include "sim/frameworks/megatron_fsdp/v2/admission.h"

#include <string>

#include "sim/frameworks/loop_admission.h"
#include "sim/frameworks/megatron_fsdp/v2/behaviour.h"
#include "sim/scenario/script_pointer.h"

namespace gradledger::megatron_fsdp::v2 {
namespace {

using Problem = std::optional<InputError>;

// Weights of another dtype than fp32 are stepped in fp32.
Problem model_problem_of(const Scenario& s) {
  Scenario stepped = s;
  stepped.model_dtype = Dtype::float32;
  for (Parameter& p : stepped.parameters) p.dtype.reset();
  if (Problem problem = model_problem(stepped, "Megatron-FSDP v2")) return problem;
  bool learns = false;
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p) {
    learns |= s.parameters[p].has_gradient();
    if (s.dtype_of(p) != Dtype::float32 && s.dtype_of(p) != Dtype::bfloat16)
      return InputError{s.parameters[p].dtype ? "/parameters/" + std::to_string(p) + "/dtype" : "/model_dtype",
                        "is not modelled with Megatron-FSDP v2; expected \"fp32\" or \"bf16\""};
  }
  return learns ? std::nullopt : Problem(InputError{"/parameters", "are all frozen; expected at least one that is trained"});
}

// What the loop may say elsewhere and not here. Empty: it may.
std::string why_not(const ScriptItem& item) {
  switch (item.kind) {
    case ScriptKind::forward: return "is not modelled with Megatron-FSDP v2; expected backward, which runs its own forward";
    case ScriptKind::clip: return "is not modelled with Megatron-FSDP v2";
    case ScriptKind::save:
    case ScriptKind::restore: return "is not modelled with Megatron-FSDP v2, whose checkpoints nobody has run";
    case ScriptKind::of_framework: return "is none of Megatron-FSDP v2, which has no methods between steps; expected no_sync, which stands for microbatch(model, is_last=False)";
    default: return "";
  }
}

Problem script_problem(const Scenario& s, const std::vector<ScriptItem>& items, const std::string& where, bool in_no_sync) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const ScriptItem& item = items[i];
    const std::string here = where + "/" + std::to_string(i);
    if (Problem problem = item_problem(s, item, here, "Megatron-FSDP v2", false)) return problem;
    if (const std::string why = why_not(item); !why.empty()) return InputError{here, why};
    if (item.kind == ScriptKind::no_sync && in_no_sync) return InputError{here, "stands in another, which says the same"};
    if (item.kind == ScriptKind::all_reduce && item.reduced == Reduced::gradients)
      return InputError{here + "/all_reduce", "adds up shards of different elements; expected a scalar"};
    if (item.kind == ScriptKind::backward && (item.sum_of != 1 || item.raises_after))
      return InputError{here + "/backward", "has sum_of or raises_after, which is not modelled with Megatron-FSDP v2"};
    if (Problem problem = script_problem(s, item.items, pointer_of_items(item, here), in_no_sync || item.kind == ScriptKind::no_sync)) return problem;
  }
  return std::nullopt;
}

}  // namespace

std::optional<InputError> v2_refusal(const Scenario& scenario, const V2Config& config) {
  if (const auto behaviour = behaviour_of(scenario.engine.as_of); !behaviour) return behaviour.error();
  if (Problem problem = units_problem(scenario, config.units)) return problem;
  if (Problem problem = mesh_problem(scenario, config.mesh)) return problem;
  if (Problem problem = model_problem_of(scenario)) return problem;
  return script_problem(scenario, scenario.script, "/script", false);
}

}  // namespace gradledger::megatron_fsdp::v2
