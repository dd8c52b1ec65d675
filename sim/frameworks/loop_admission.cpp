#include "sim/frameworks/loop_admission.h"

#include <algorithm>

#include "sim/scenario/factor.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/script_pointer.h"

namespace gradledger {
namespace {

// Empty: the loop may say it.
std::string foreign(ScriptKind kind, const std::string& wrapper) {
  switch (kind) {
    case ScriptKind::set_boundary: return "is an engine's notion; " + wrapper + " has no boundaries";
    case ScriptKind::coalesce: return "is DeepSpeed's; expected no_sync";
    case ScriptKind::set_gradient:
    case ScriptKind::finalize: return "is DeepSpeed's";
    case ScriptKind::of_framework:
    case ScriptKind::forward:
    case ScriptKind::backward:
    case ScriptKind::step:
    case ScriptKind::engine_zero_grad:
    case ScriptKind::optimizer_zero_grad:
    case ScriptKind::raise:
    case ScriptKind::no_sync:
    case ScriptKind::repeat:
    case ScriptKind::overflow:
    case ScriptKind::scale_gradients:
    case ScriptKind::clip:
    case ScriptKind::all_reduce:
    case ScriptKind::save:
    case ScriptKind::restore:
    case ScriptKind::unscale: return "";
  }
  return "";
}

// What comes too late where gradients are used up inside the backward, or leaves it half done. Empty: the loop may say it.
std::string at_odds_with_steps_inside(const ScriptItem& item) {
  switch (item.kind) {
    case ScriptKind::step: return "is not called where the optimizer runs inside backwards; expected none with optimizer_in_backward";
    case ScriptKind::unscale:
    case ScriptKind::scale_gradients:
    case ScriptKind::clip:
    case ScriptKind::all_reduce: return "comes too late: with optimizer_in_backward gradients are applied and gone when a backward ends; expected none";
    case ScriptKind::forward: return "is told from others by its number in a window, which ends inside backwards; expected backward, which runs its own forward";
    case ScriptKind::raise: return "is not judged with optimizer_in_backward; expected none";
    case ScriptKind::backward: return item.raises_after ? "leaves a part of the parameters updated, which no window says; expected a backward without raises_after" : "";
    case ScriptKind::set_boundary:
    case ScriptKind::coalesce:
    case ScriptKind::set_gradient:
    case ScriptKind::finalize:
    case ScriptKind::save:
    case ScriptKind::restore:
    case ScriptKind::of_framework:
    case ScriptKind::engine_zero_grad:
    case ScriptKind::optimizer_zero_grad:
    case ScriptKind::no_sync:
    case ScriptKind::repeat:
    case ScriptKind::overflow: return "";
  }
  return "";
}

std::optional<InputError> at_odds(const std::vector<ScriptItem>& items, const std::string& where) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string here = where + "/" + std::to_string(i);
    if (const std::string why = at_odds_with_steps_inside(items[i]); !why.empty()) return InputError{here, why};
    if (auto problem = at_odds(items[i].items, pointer_of_items(items[i], here))) return problem;
  }
  return std::nullopt;
}

bool of_one_dtype(const Scenario& s) {
  std::optional<Dtype> dtype;
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p)
    if (s.parameters[p].has_gradient() && dtype.value_or(s.dtype_of(p)) != s.dtype_of(p)) return false;
    else if (s.parameters[p].has_gradient()) dtype = s.dtype_of(p);
  return true;
}

}  // namespace

std::optional<InputError> item_problem(const Scenario& s, const ScriptItem& item, const std::string& here, const std::string& wrapper, bool scaled) {
  if (const std::string why = foreign(item.kind, wrapper); !why.empty()) return InputError{here, why};
  if (item.kind == ScriptKind::unscale && !scaled) return InputError{here, "unscales what nothing scaled; expected grad_scaler in /engine/config"};
  if (item.past_scaler && !scaled) return InputError{here, "goes past a GradScaler that there is none of; expected grad_scaler in /engine/config"};
  if (item.kind == ScriptKind::clip && !of_one_dtype(s)) return InputError{here + "/clip", "is modelled for gradients of one dtype, and parameters have several"};
  if (item.kind == ScriptKind::backward && (!item.scale_wrt_gas || item.phases != 1 || item.direct))
    return InputError{here + "/backward", "has scale_wrt_gas, phases or direct, which are DeepSpeed's"};
  return std::nullopt;
}

std::optional<InputError> model_problem(const Scenario& s, const std::string& wrapper) {
  const std::string not_modelled = "is not modelled with " + wrapper;
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p) {
    const Parameter& parameter = s.parameters[p];
    const std::string where = parameter_pointer(s, p);
    if (parameter.tied_to) return InputError{where + "/tied_to", not_modelled};
    if (parameter.expert) return InputError{where + "/expert", not_modelled};
    if (parameter.on_side_stream) return InputError{where + "/on_side_stream", not_modelled};
    const OptimizerConfig optimizer = s.engine.optimizer_of(p);
    if (s.dtype_of(p) == Dtype::float32) continue;
    if (optimizer.type != OptimizerType::sgd || optimizer.weight_decay != 0 || !exact_factor(optimizer.learning_rate))
      return InputError{"/engine/optimizer", "steps on weights that are not fp32, which is modelled for SGD without weight decay, with a learning rate of " + exact_factors()};
  }
  if (s.engine.pipeline_stages > 1) return InputError{"/engine/pipeline_stages", not_modelled};
  if (s.engine.sequence_parallel_size > 1) return InputError{"/engine/sequence_parallel_size", not_modelled};
  if (s.engine.expert_parallel_size > 1) return InputError{"/engine/expert_parallel_size", not_modelled};
  return std::nullopt;
}

std::optional<InputError> layout_problem_of(const Scenario& s, const std::string& wrapper) {
  const bool laid = s.layout && s.layout->size("tp") > 1;
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p) {
    const Parameter& parameter = s.parameters[p];
    const std::string where = parameter_pointer(s, p);
    for (const auto& [key, group] : {std::pair{"/sharded_over", parameter.part ? parameter.part->over : ""}, std::pair{"/summed_over", parameter.summed_over},
                                     std::pair{"/averaged_over", parameter.averaged_over}})
      if (!group.empty() && (group != "tp" || !laid))
        return InputError{where + key, "is \"" + group + "\"; expected \"tp\", of two or more ranks of /layout, over which a model under " + wrapper + " is cut"};
    if (!parameter.averaged_over.empty())
      return InputError{where + "/averaged_over", "is not modelled with " + wrapper + ", where no rank averages over tensor-parallel ones; expected summed_over, or none"};
  }
  if (laid && s.gradients.kind == GradientKind::mlp) return InputError{"/gradients/kind", "is \"mlp\", whose backward no tensor-parallel ranks share; expected another"};
  return std::nullopt;
}

std::optional<InputError> neighbours_problem(const Scenario& s, const std::string& framework) {
  for (const auto& [dimension, sets] : {std::pair{"pp", neighbour_stages(s)}, std::pair{"ep", neighbour_experts(s)}})
    if (s.layout && s.layout->size(dimension) > 1 && s.layout->groups().at(dimension) != sets)
      return InputError{"/layout/order", std::string("puts the ranks of ") + dimension + " elsewhere than " + framework + " does here; expected " +
                                             (dimension == std::string_view("pp") ? "it last" : "it first")};
  return std::nullopt;
}

std::optional<InputError> plain_problem(const Scenario& s, const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string where = "/engine/config/plain/" + std::to_string(i);
    const auto p = std::find_if(s.parameters.begin(), s.parameters.end(), [&](const Parameter& each) { return each.name == names[i]; });
    if (p == s.parameters.end()) return InputError{where, "names no parameter: \"" + names[i] + "\""};
    if (!s.layout || s.layout->size("tp") == 1) return InputError{where, "is no DTensor on tensor-parallel ranks, which there are none of; expected tp of two or more in /layout"};
  }
  return std::nullopt;
}

std::optional<InputError> inside_backwards_problem(const Scenario& scenario) {
  if (scenario.contract.window != Window::since_last_step)
    return InputError{"/contract/window", "states windows that steps close, and with optimizer_in_backward none is called; expected it to be left out"};
  return at_odds(scenario.script, "/script");
}

}  // namespace gradledger
