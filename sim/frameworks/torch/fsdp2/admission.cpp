#include "sim/frameworks/torch/fsdp2/admission.h"

#include <algorithm>
#include <map>
#include <string>

#include "sim/frameworks/torch/fsdp2/behaviour.h"
#include "sim/frameworks/torch/fsdp2/calls.h"
#include "sim/frameworks/torch/fsdp2/modules.h"
#include "sim/frameworks/loop_admission.h"
#include "sim/numeric/dtype_names.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/script_pointer.h"

namespace gradledger::torch::fully_shard {
namespace {

using Problem = std::optional<InputError>;

Problem parallelized_problem(const Scenario& s, const Fsdp2Config& config) {
  if (Problem problem = plain_problem(s, config.plain)) return problem;
  for (std::size_t i = 0; i < config.plain.size(); ++i)
    if (s.parameters[parameter_number(s, config.plain[i])].part)
      return InputError{"/engine/config/plain/" + std::to_string(i),
                        "is \"" + config.plain[i] + "\", which is cut over tensor-parallel ranks; expected one that each of them has whole"};
  if (!config.plain.empty() && config.grad_scaler) return InputError{"/engine/config/plain", "is not modelled beside grad_scaler; expected one of the two"};
  return std::nullopt;
}

// _fsdp_api.py: _resolve_for_param, at torch 2.15
Problem override_problem(const Scenario& s, const MixedPrecision& given) {
  const std::string where = "/engine/config/mixed_precision/param_dtype_override_fn";
  for (const auto& [name, dtype] : given.param_dtype_override_fn) {
    const std::uint32_t p = parameter_number(s, name);
    if (p == s.parameters.size()) return InputError{where, "names no parameter: \"" + name + "\""};
    if (dtype == given.param_dtype || dtype == s.dtype_of(p)) continue;
    const std::string torch = "torch.", param_dtype = given.param_dtype ? torch + std::string(torch_name_of(*given.param_dtype)) : "None";
    return InputError{
        where + "/" + pointer_token(name),
        "PyTorch refuses this at initialisation: ValueError: param_dtype_override_fn must return None, param_dtype, or the parameter's original dtype but got torch." +
            std::string(torch_name_of(dtype)) + " for a parameter with dtype torch." + std::string(torch_name_of(s.dtype_of(p))) + " and param_dtype " + param_dtype};
  }
  return std::nullopt;
}

Problem option_problem(const Scenario& s, const Fsdp2Config& config) {
  if (Problem problem = units_problem(s, config.units)) return problem;
  if (Problem problem = mesh_problem(s, config.mesh, averaging_group(s))) return problem;
  if (Problem problem = parallelized_problem(s, config)) return problem;
  if (Problem problem = override_problem(s, config.mixed_precision)) return problem;
  const std::vector<std::uint32_t> module_of = module_of_parameters(s, config.wrap, config.units);
  for (std::size_t i = 0; i < config.nested.size(); ++i) {
    const std::uint32_t p = parameter_number(s, config.nested[i]);
    if (p == s.parameters.size() || module_of[p] != 0)
      return InputError{"/engine/config/nested/" + std::to_string(i), "is \"" + config.nested[i] + "\"; expected a parameter that is in no unit"};
  }
  for (const auto& [name, rows] : config.rows) {
    const std::uint32_t p = parameter_number(s, name);
    if (p == s.parameters.size()) return InputError{"/engine/config/rows", "names no parameter: \"" + name + "\""};
    if (s.parameters[p].numel % rows != 0)
      return InputError{"/engine/config/rows/" + name, "is " + std::to_string(rows) + ", which does not divide the " + std::to_string(s.parameters[p].numel) + " elements"};
  }
  if (config.grad_dtype && *config.grad_dtype != s.model_dtype)
    for (std::uint32_t p = 0; p < s.parameters.size(); ++p)
      if (s.engine.optimizer_of(p).type != OptimizerType::sgd)
        return InputError{"/engine/config/grad_dtype", "is no dtype of the weights, which an optimizer with moments refuses in its step; expected SGD, or their dtype"};
  if (config.optimizer_in_backward && config.grad_scaler)
    return InputError{"/engine/config/optimizer_in_backward", "steps before a GradScaler could unscale; expected it without grad_scaler"};
  return std::nullopt;
}

// A module gathers its parameters together, in one dtype.
Problem dtype_problem(const Scenario& s, const Fsdp2Config& config) {
  const std::vector<std::uint32_t> module_of = module_of_parameters(s, config.wrap, config.units);
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p)
    for (std::uint32_t q = 0; q < p; ++q)
      if (module_of[q] == module_of[p] && s.dtype_of(q) != s.dtype_of(p))
        return InputError{parameter_pointer(s, p) + "/dtype", "differs within a module, whose parameters are gathered together"};
  return std::nullopt;
}

class Script {
 public:
  Script(const Scenario& s, const Fsdp2Config& config) : s_(s), config_(config), units_(modules_of(s, config, 0).parameters.size() - 1), groups_(named_groups(s)) {}

  Problem problem(const std::vector<ScriptItem>& items, const std::string& where, bool in_no_sync) const {
    for (std::size_t i = 0; i < items.size(); ++i) {
      const std::string here = where + "/" + std::to_string(i);
      if (Problem problem = problem_of(items[i], here, in_no_sync)) return problem;
      if (Problem inside = problem(items[i].items, pointer_of_items(items[i], here), in_no_sync || items[i].kind == ScriptKind::no_sync)) return inside;
    }
    return std::nullopt;
  }

 private:
  Problem problem_of(const ScriptItem& item, const std::string& here, bool in_no_sync) const {
    if (Problem problem = item_problem(s_, item, here, "fully_shard", config_.grad_scaler.has_value())) return problem;
    if (item.kind == ScriptKind::no_sync && in_no_sync) return InputError{here, "stands in another; fully_shard has a switch and no block, which the inner one would put back"};
    if (item.kind == ScriptKind::clip)
      for (std::uint32_t r = 0; r < s_.world_size; ++r)
        if (const std::size_t ranks = groups_.of(item.over, r).size(); ranks > 1 && ranks < s_.world_size)
          return InputError{here + "/clip/norm_over", "is a group of shards that belong to all ranks; expected all ranks, or one"};
    if (item.kind == ScriptKind::all_reduce && item.reduced == Reduced::gradients)
      return InputError{here + "/all_reduce", "adds up shards of different elements; expected a scalar"};
    if (item.kind != ScriptKind::of_framework) return std::nullopt;
    const Call& call = item.event.arguments.as<Call>();
    if (call.unit && *call.unit >= units_) return InputError{here + "/event/unit", "is " + std::to_string(*call.unit) + ", and there are " + std::to_string(units_) + " units"};
    return std::nullopt;
  }

  const Scenario& s_;
  const Fsdp2Config& config_;
  std::size_t units_;
  Groups groups_;
};

}  // namespace

std::optional<InputError> not_yet_there(const Scenario& s, const Fsdp2Config& config) {
  const std::string_view of_policy = "param_dtype_override_fn";
  const std::pair<const char*, bool> options[] = {{"gradient_divide_factor", config.gradient_divide_factor.has_value()},
                                                  {"force_sum_reduction_for_comms", config.force_sum_reduction_for_comms},
                                                  {"reduce_scatter_unused_params", config.reduce_scatter_unused_params},
                                                  {"param_dtype_override_fn", !config.mixed_precision.param_dtype_override_fn.empty()}};
  for (const auto& [name, said] : options)
    if (said)
      if (Problem problem = history().missing(s.engine.as_of, name, std::string("/engine/config/") + (name == of_policy ? "mixed_precision/" : "") + name)) return problem;
  return history().missing_calls(s.engine.as_of, s.script, "/script");
}

std::optional<InputError> fsdp2_refusal(const Scenario& scenario, const Fsdp2Config& config) {
  if (Problem problem = option_problem(scenario, config)) return problem;
  if (Problem problem = model_problem(scenario, "fully_shard")) return problem;
  if (Problem problem = layout_problem_of(scenario, "fully_shard")) return problem;
  if (Problem problem = dtype_problem(scenario, config)) return problem;
  return Script(scenario, config).problem(scenario.script, "/script", false);
}

}  // namespace gradledger::torch::fully_shard
