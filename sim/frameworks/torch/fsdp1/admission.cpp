#include "sim/frameworks/torch/fsdp1/admission.h"

#include <algorithm>
#include <string>

#include "sim/frameworks/torch/fsdp1/layout.h"
#include "sim/frameworks/torch/loop_admission.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/script_pointer.h"

namespace gradledger::torch::flat_sharded {
namespace {

using Problem = std::optional<InputError>;

std::uint32_t number_of(const Scenario& s, const std::string& name) {
  const auto at = std::find_if(s.parameters.begin(), s.parameters.end(), [&](const Parameter& p) { return p.name == name; });
  return static_cast<std::uint32_t>(at - s.parameters.begin());
}

// Every parameter once, those of a unit one behind the other: a forward enters a unit once.
Problem units_problem(const Scenario& s, const Fsdp1Config& config) {
  std::vector<bool> named(s.parameters.size());
  for (std::size_t u = 0; config.units && u < config.units->size(); ++u) {
    const std::vector<std::string>& unit = (*config.units)[u];
    for (std::size_t i = 0; i < unit.size(); ++i) {
      const std::string where = "/engine/config/units/" + std::to_string(u) + "/" + std::to_string(i);
      const std::uint32_t p = number_of(s, unit[i]);
      if (p == s.parameters.size()) return InputError{where, "names no parameter: \"" + unit[i] + "\""};
      if (named[p]) return InputError{where, "names \"" + unit[i] + "\" again; expected each parameter in one unit"};
      if (i > 0 && p != number_of(s, unit[i - 1]) + 1) return InputError{where, "does not follow \"" + unit[i - 1] + "\" in /parameters; expected parameters in their order"};
      named[p] = true;
    }
  }
  return std::nullopt;
}

// Each rank of a shard is in another replica, at the same place of its shard, and the two make up the world.
Problem mesh_problem(const Scenario& s, const Fsdp1Config& config) {
  if (!config.mesh) return std::nullopt;
  const Groups groups = named_groups(s);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string& name = i == 0 ? config.mesh->replicate : config.mesh->shard;
    if (!groups.contains(name)) return InputError{"/engine/config/mesh/" + std::to_string(i), "names no group: \"" + name + "\"; expected one of " + groups.names()};
  }
  const auto place = [&](std::uint32_t rank) {
    const auto shards = groups.of(config.mesh->shard, rank);
    return std::find(shards.begin(), shards.end(), rank) - shards.begin();
  };
  for (std::uint32_t r = 0; r < s.world_size; ++r) {
    const auto replicas = groups.of(config.mesh->replicate, r), shards = groups.of(config.mesh->shard, r);
    const auto common = std::count_if(replicas.begin(), replicas.end(), [&](std::uint32_t other) { return std::find(shards.begin(), shards.end(), other) != shards.end(); });
    if (common != 1 || replicas.size() * shards.size() != s.world_size)
      return InputError{"/engine/config/mesh", "is no mesh: the groups of rank " + std::to_string(r) + " have " + std::to_string(replicas.size()) + " and " +
                                                   std::to_string(shards.size()) + " ranks, " + std::to_string(common) +
                                                   " of them in both; expected one in both, and a product of world_size"};
    if (shards.size() == 1) return InputError{"/engine/config/mesh/1", "is a group of one rank, of which FullyShardedDataParallel makes NO_SHARD; expected at least two"};
    for (const std::uint32_t replica : replicas)
      if (place(replica) != place(r))
        return InputError{"/engine/config/mesh", "is no mesh: ranks " + std::to_string(r) + " and " + std::to_string(replica) + " replicate each other and are number " +
                                                     std::to_string(place(r)) + " and " + std::to_string(place(replica)) + " of their shards; expected the same place in both"};
  }
  return std::nullopt;
}

// Joined parameters have one dtype, all learn or none does, and one optimizer steps on them.
Problem flat_problem(const Scenario& s, const Fsdp1Config& config) {
  const std::vector<std::uint32_t> module_of = module_of_parameters(s, config);
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p) {
    const std::string where = "/parameters/" + std::to_string(p);
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

// Places in a gathered parameter are numbers of 32 bits.
Problem gathered_problem(const Scenario& s, const Fsdp1Config& config) {
  const std::vector<std::uint64_t> numels = gathered_numels(s, config);
  for (std::size_t m = 0; m < numels.size(); ++m)
    if (numels[m] > 0xFFFFFFFFull)
      return InputError{"/parameters", "make module " + std::to_string(m) + " gather " + std::to_string(numels[m]) + " elements, padding included; expected less than 2^32"};
  return std::nullopt;
}

Problem precision_problem(const Scenario& s, const Fsdp1Config& config) {
  if (!config.mixed_precision.keep_low_precision_grads) return std::nullopt;
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p)
    if (s.engine.optimizer_of(p).type != OptimizerType::sgd || s.engine.optimizer_of(p).weight_decay != 0)
      return InputError{"/engine/optimizer", "steps with gradients of low precision, which is modelled for SGD without weight decay"};
  return std::nullopt;
}

const char* foreign(ScriptKind kind) {
  switch (kind) {
    case ScriptKind::set_boundary: return "is an engine's notion; FullyShardedDataParallel has no boundaries";
    case ScriptKind::coalesce: return "is DeepSpeed's; expected no_sync";
    case ScriptKind::set_gradient:
    case ScriptKind::finalize: return "is DeepSpeed's";
    case ScriptKind::save:
    case ScriptKind::restore: return "is not modelled with FullyShardedDataParallel";
    case ScriptKind::of_framework: return "is another framework's; FullyShardedDataParallel has none of its own";
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
    case ScriptKind::unscale: return nullptr;
  }
  return nullptr;
}

class Script {
 public:
  Script(const Scenario& s, const Fsdp1Config& config) : s_(s), config_(config), groups_(named_groups(s)) {
    in_fp32_ = !config.mixed_precision.keep_low_precision_grads &&
               std::all_of(s.parameters.begin(), s.parameters.end(), [&](const Parameter& p) { return p.dtype.value_or(s.model_dtype) == Dtype::float32; });
  }

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
    if (const char* why = foreign(item.kind)) return InputError{here, why};
    if (item.kind == ScriptKind::no_sync && in_no_sync) return InputError{here, "stands in another, which is not modelled with FullyShardedDataParallel"};
    if (item.kind == ScriptKind::unscale && !config_.grad_scaler) return InputError{here, "unscales what nothing scaled; expected grad_scaler in /engine/config"};
    if (item.past_scaler && !config_.grad_scaler) return InputError{here, "goes past a gradient scaler that there is none of; expected grad_scaler in /engine/config"};
    if (item.kind == ScriptKind::clip && !in_fp32_) return InputError{here + "/clip", "is modelled for gradients in fp32"};
    if (item.kind == ScriptKind::clip)
      for (std::uint32_t r = 0; r < s_.world_size; ++r)
        if (const std::size_t ranks = groups_.of(item.over, r).size(); ranks > 1 && ranks < s_.world_size)
          return InputError{here + "/clip/norm_over", "is neither all ranks nor one; expected \"world\", which is the wrapper's clip_grad_norm_, or \"rank\""};
    if (item.kind == ScriptKind::all_reduce && item.reduced == Reduced::gradients)
      return InputError{here + "/all_reduce", "adds up shards of different elements; expected a scalar"};
    if (item.kind == ScriptKind::backward && (!item.scale_wrt_gas || item.phases != 1 || item.direct))
      return InputError{here + "/backward", "has scale_wrt_gas, phases or direct, which are DeepSpeed's"};
    return std::nullopt;
  }

  const Scenario& s_;
  const Fsdp1Config& config_;
  Groups groups_;
  bool in_fp32_ = true;
};

Problem not_judged_of(const std::vector<ScriptItem>& items, const std::string& where) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string here = where + "/" + std::to_string(i);
    if (items[i].sum_of != 1) return InputError{here + "/backward/sum_of", "is replayed from recordings and not judged; expected a backward for each forward"};
    if (!items[i].order.empty()) return InputError{here + "/backward/order", "is that of the modules with FullyShardedDataParallel; expected nothing"};
    if (Problem problem = not_judged_of(items[i].items, pointer_of_items(items[i], here))) return problem;
  }
  return std::nullopt;
}

}  // namespace

std::optional<InputError> fsdp1_refusal(const Scenario& scenario, const Fsdp1Config& config) {
  if (Problem problem = units_problem(scenario, config)) return problem;
  if (Problem problem = mesh_problem(scenario, config)) return problem;
  if (Problem problem = model_problem(scenario, "FullyShardedDataParallel")) return problem;
  if (Problem problem = flat_problem(scenario, config)) return problem;
  if (Problem problem = gathered_problem(scenario, config)) return problem;
  if (Problem problem = precision_problem(scenario, config)) return problem;
  return Script(scenario, config).problem(scenario.script, "/script", false);
}

std::optional<InputError> not_judged(const Scenario& scenario) { return not_judged_of(scenario.script, "/script"); }

}  // namespace gradledger::torch::flat_sharded
