#include "sim/frameworks/torch/fsdp1/admission.h"

#include <algorithm>
#include <ranges>
#include <string>

#include "sim/frameworks/torch/fsdp1/layout.h"
#include "sim/frameworks/loop_admission.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/script_pointer.h"

namespace gradledger::torch::flat_sharded {
namespace {

using Problem = std::optional<InputError>;

// Joined parameters have one dtype, all learn or none does, and one optimizer steps on them.
Problem flat_problem(const Scenario& s, const Fsdp1Config& config) {
  const std::vector<std::uint32_t> module_of = module_of_parameters(s, config.wrap, config.units);
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p) {
    const std::string where = "/parameters/" + std::to_string(p);
    const auto has_elements = [&](std::uint32_t q) { return module_of[q] == module_of[p] && s.parameters[q].numel > 0; };
    if (std::ranges::none_of(std::views::iota(0u, static_cast<std::uint32_t>(s.parameters.size())), has_elements))
      return InputError{where + "/numel",
                        "leaves a module without elements, whose parameters FullyShardedDataParallel cannot join: an assertion of it fails; expected one element at least"};
    if (!s.parameters[p].has_gradient()) return InputError{where + "/trainable", "is false, which is not modelled with FullyShardedDataParallel"};
    for (std::uint32_t q = 0; q < p; ++q) {
      if (module_of[q] != module_of[p]) continue;
      if (s.dtype_of(q) != s.dtype_of(p)) return InputError{where + "/dtype", "differs within a module, whose parameters are joined"};
      if (!config.use_orig_params && !(s.engine.optimizer_of(q) == s.engine.optimizer_of(p)))
        return InputError{"/engine/param_groups", "has parameters of one module in several groups; expected use_orig_params, or all of a module in one"};
    }
  }
  return std::nullopt;
}

Problem precision_problem(const Scenario& s, const Fsdp1Config& config) {
  if (!config.mixed_precision.keep_low_precision_grads) return std::nullopt;
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p)
    if (s.engine.optimizer_of(p).type != OptimizerType::sgd || s.engine.optimizer_of(p).weight_decay != 0)
      return InputError{"/engine/optimizer", "steps with gradients of low precision, which is modelled for SGD without weight decay"};
  return std::nullopt;
}

class Script {
 public:
  Script(const Scenario& s, const Fsdp1Config& config) : s_(s), config_(config), groups_(named_groups(s)) {}

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
    if (Problem problem = item_problem(s_, item, here, "FullyShardedDataParallel", config_.grad_scaler.has_value())) return problem;
    if (item.kind == ScriptKind::of_framework) return InputError{here, "is another framework's; FullyShardedDataParallel has no events of its own"};
    if (item.kind == ScriptKind::no_sync && in_no_sync) return InputError{here, "stands in another, which is not modelled with FullyShardedDataParallel"};
    if (item.kind == ScriptKind::clip)
      for (std::uint32_t r = 0; r < s_.world_size; ++r)
        if (const std::size_t ranks = groups_.of(item.over, r).size(); ranks > 1 && ranks < s_.world_size)
          return InputError{here + "/clip/norm_over", "is neither all ranks nor one; expected \"world\", which is the wrapper's clip_grad_norm_, or \"rank\""};
    if (item.kind == ScriptKind::all_reduce && item.reduced == Reduced::gradients)
      return InputError{here + "/all_reduce", "adds up shards of different elements; expected a scalar"};
    return std::nullopt;
  }

  const Scenario& s_;
  const Fsdp1Config& config_;
  Groups groups_;
};

Problem not_judged_of(const std::vector<ScriptItem>& items, const std::string& where) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string here = where + "/" + std::to_string(i);
    if (!items[i].order.empty()) return InputError{here + "/backward/order", "is that of the modules with FullyShardedDataParallel; expected nothing"};
    if (Problem problem = not_judged_of(items[i].items, pointer_of_items(items[i], here))) return problem;
  }
  return std::nullopt;
}

}  // namespace

std::optional<InputError> fsdp1_refusal(const Scenario& scenario, const Fsdp1Config& config) {
  if (Problem problem = units_problem(scenario, config.units)) return problem;
  if (Problem problem = mesh_problem(scenario, config.mesh)) return problem;
  if (Problem problem = model_problem(scenario, "FullyShardedDataParallel")) return problem;
  if (Problem problem = flat_problem(scenario, config)) return problem;
  if (Problem problem = precision_problem(scenario, config)) return problem;
  return Script(scenario, config).problem(scenario.script, "/script", false);
}

std::optional<InputError> not_judged(const Scenario& scenario) { return not_judged_of(scenario.script, "/script"); }

}  // namespace gradledger::torch::flat_sharded
