#include "sim/frameworks/torch/ddp/admission.h"

#include <algorithm>
#include <string>

#include "sim/frameworks/loop_admission.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/script_pointer.h"

namespace gradledger::torch {
namespace {

using Problem = std::optional<InputError>;

Problem power_sgd_problem(const Scenario& s, const DdpConfig& config) {
  for (const auto& [name, rows] : config.rows) {
    const auto p = std::find_if(s.parameters.begin(), s.parameters.end(), [&](const Parameter& each) { return each.name == name; });
    if (p == s.parameters.end()) return InputError{"/engine/config/rows", "names no parameter: \"" + name + "\""};
    if (p->numel % rows != 0)
      return InputError{"/engine/config/rows/" + name, "is " + std::to_string(rows) + ", which does not divide the " + std::to_string(p->numel) + " elements"};
  }
  if (!config.power_sgd) return std::nullopt;
  if ((config.power_sgd->use_error_feedback || config.power_sgd->warm_start) && config.power_sgd->start_powerSGD_iter <= 1)
    return InputError{"/engine/config/PowerSGDState/start_powerSGD_iter",
                      "PyTorch refuses this: ValueError: Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because PowerSGD can "
                      "only be applied after the first two iterations in DDP."};
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p)
    if (s.parameters[p].has_gradient() && s.parameters[p].numel == 0)
      return InputError{parameter_pointer(s, p) + "/numel", "is 0; powerSGD_hook takes every parameter for a matrix, which one without elements is not"};
  return std::nullopt;
}

// Beside tensor-parallel ranks the wrapper puts plain parameters into the places of DTensors.
Problem localized_problem(const Scenario& s, const DdpConfig& config) {
  if (!s.layout || s.layout->size("tp") < 2) return std::nullopt;
  const auto replaced = [&](const Parameter& p) { return p.has_gradient() && !config.is_plain(p.name); };
  if (config.optimizer_in_backward && std::any_of(s.parameters.begin(), s.parameters.end(), replaced))
    return InputError{"/engine/config/optimizer_in_backward",
                      "finds no optimizer at the parameters that DistributedDataParallel puts in the place of those of tensor-parallel ranks, so that these would never step; "
                      "expected it without them"};
  const auto delayed = [&](const Parameter& p) {
    const auto& names = config.delay_all_reduce->parameters;
    return replaced(p) && std::find(names.begin(), names.end(), p.name) != names.end();
  };
  if (config.delay_all_reduce && std::any_of(s.parameters.begin(), s.parameters.end(), delayed))
    return InputError{"/engine/config/delay_all_reduce/params",
                      "PyTorch refuses this at initialisation: RuntimeError: aten.copy_.default got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to "
                      "DTensor before calling distributed operators!"};
  return std::nullopt;
}

Problem option_problem(const Scenario& s, const DdpConfig& config) {
  if (config.skip_all_reduce_unused_params && !config.find_unused_parameters)
    return InputError{"/engine/config/skip_all_reduce_unused_params", "skips what find_unused_parameters finds; expected both"};
  if (config.optimizer_in_backward && config.comm_hook != CommHook::none)
    return InputError{"/engine/config/optimizer_in_backward", "is a communication hook of its own, and one can be registered; expected it without comm_hook"};
  if (Problem problem = power_sgd_problem(s, config)) return problem;
  if (config.optimizer_in_backward && config.post_accumulate_grad_hook)
    return InputError{"/engine/config/post_accumulate_grad_hook", "steps each parameter, and so does optimizer_in_backward; expected one of the two"};
  if (config.steps_inside_backwards() && config.grad_scaler)
    return InputError{config.optimizer_in_backward ? "/engine/config/optimizer_in_backward" : "/engine/config/post_accumulate_grad_hook",
                      "steps before a GradScaler could unscale; expected it without grad_scaler"};
  if (Problem problem = plain_problem(s, config.plain)) return problem;
  if (Problem problem = localized_problem(s, config)) return problem;
  if (!config.delay_all_reduce) return std::nullopt;
  const std::string where = "/engine/config/delay_all_reduce";
  const auto learns = [&](const std::string& name) {
    return std::any_of(s.parameters.begin(), s.parameters.end(), [&](const Parameter& p) { return p.name == name && p.has_gradient(); });
  };
  for (const std::string& name : config.delay_all_reduce->parameters)
    if (!learns(name)) return InputError{where + "/params", "names no parameter that has a gradient of its own: \"" + name + "\""};
  if (!learns(config.delay_all_reduce->hook))
    return InputError{where + "/hook", "names no parameter that has a gradient of its own, on which a hook can be: \"" + config.delay_all_reduce->hook + "\""};
  const bool all = std::all_of(s.parameters.begin(), s.parameters.end(), [&](const Parameter& p) {
    const auto& delayed = config.delay_all_reduce->parameters;
    return !p.has_gradient() || std::find(delayed.begin(), delayed.end(), p.name) != delayed.end();
  });
  if (all)
    return InputError{where + "/params",
                      "PyTorch refuses this at initialisation: ValueError: DistributedDataParallel's input module must be on the same type of devices, "
                      "but input module parameters locate in set()."};
  return std::nullopt;
}

Problem learning_problem(const Scenario& s) {
  if (std::any_of(s.parameters.begin(), s.parameters.end(), [](const Parameter& p) { return p.has_gradient(); })) return std::nullopt;
  return InputError{"/parameters",
                    "PyTorch refuses this at initialisation: RuntimeError: DistributedDataParallel is not needed when a module doesn't have any "
                    "parameters that require a gradient."};
}

// A DTensor's parameter is made anew, and the new one requires a gradient that it does not get. ddp.py: _localize_dtensor, at torch 2.13
Problem frozen_problem(const Scenario& s, const DdpConfig& config) {
  for (std::uint32_t p = 0; s.layout && s.layout->size("tp") > 1 && p < s.parameters.size(); ++p)
    if (!s.parameters[p].trainable && !config.is_plain(s.parameters[p].name))
      return InputError{
          parameter_pointer(s, p) + "/trainable",
          "is false, and DistributedDataParallel makes parameters of DTensors anew, which then wait for a gradient; expected it in plain of /engine/config, or trained"};
  return std::nullopt;
}

Problem script_problem(const Scenario& s, const DdpConfig& config, const std::vector<ScriptItem>& items, const std::string& where) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const ScriptItem& item = items[i];
    const std::string here = where + "/" + std::to_string(i);
    if (Problem problem = item_problem(s, item, here, "DistributedDataParallel", config.grad_scaler.has_value())) return problem;
    if ((item.kind == ScriptKind::save || item.kind == ScriptKind::restore) && s.layout && s.layout->size("tp") > 1)
      return InputError{here, "is not modelled with tensor-parallel ranks, behind whose first forward the module has no parameters to save"};
    if (item.kind == ScriptKind::of_framework && config.steps_inside_backwards()) return InputError{here + "/event", "is not modelled with an optimizer inside backwards"};
    if (Problem problem = script_problem(s, config, item.items, pointer_of_items(item, here))) return problem;
  }
  return std::nullopt;
}

}  // namespace

std::optional<InputError> ddp_refusal(const Scenario& scenario, const DdpConfig& config) {
  if (Problem problem = option_problem(scenario, config)) return problem;
  if (Problem problem = model_problem(scenario, "DistributedDataParallel")) return problem;
  if (Problem problem = layout_problem_of(scenario, "DistributedDataParallel")) return problem;
  if (Problem problem = frozen_problem(scenario, config)) return problem;
  if (Problem problem = learning_problem(scenario)) return problem;
  return script_problem(scenario, config, scenario.script, "/script");
}

}  // namespace gradledger::torch
