#include "sim/frameworks/torch/fsdp2/admission.h"

#include <algorithm>
#include <map>
#include <string>

#include "sim/frameworks/torch/fsdp2/calls.h"
#include "sim/frameworks/torch/fsdp2/modules.h"
#include "sim/frameworks/torch/loop_admission.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/script_pointer.h"

namespace gradledger::torch::fully_shard {
namespace {

using Problem = std::optional<InputError>;

std::uint32_t number_of(const Scenario& s, const std::string& name) {
  const auto at = std::find_if(s.parameters.begin(), s.parameters.end(), [&](const Parameter& p) { return p.name == name; });
  return static_cast<std::uint32_t>(at - s.parameters.begin());
}

// Every parameter once, those of a unit one behind the other: a forward enters a unit once.
Problem units_problem(const Scenario& s, const Fsdp2Config& config) {
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

// What replicas reduce with each other are the same pieces.
Problem places_problem(const Scenario& s, const Fsdp2Config& config, const Groups& groups) {
  const auto place = [&](std::uint32_t rank) {
    const auto shards = groups.of(config.mesh->shard, rank);
    return std::find(shards.begin(), shards.end(), rank) - shards.begin();
  };
  for (std::uint32_t r = 0; r < s.world_size; ++r)
    for (const std::uint32_t replica : groups.of(config.mesh->replicate, r))
      if (place(replica) != place(r))
        return InputError{"/engine/config/mesh", "is no mesh: ranks " + std::to_string(r) + " and " + std::to_string(replica) + " replicate each other and are number " +
                                                     std::to_string(place(r)) + " and " + std::to_string(place(replica)) + " of their shards; expected the same place in both"};
  return std::nullopt;
}

// Each rank of a shard is in another replica, and the two make up the world.
Problem mesh_problem(const Scenario& s, const Fsdp2Config& config) {
  if (!config.mesh) return std::nullopt;
  const Groups groups = named_groups(s);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string& name = i == 0 ? config.mesh->replicate : config.mesh->shard;
    if (!groups.contains(name)) return InputError{"/engine/config/mesh/" + std::to_string(i), "names no group: \"" + name + "\"; expected one of " + groups.names()};
  }
  for (std::uint32_t r = 0; r < s.world_size; ++r) {
    const auto replicas = groups.of(config.mesh->replicate, r), shards = groups.of(config.mesh->shard, r);
    std::vector<std::uint32_t> common;
    std::set_intersection(replicas.begin(), replicas.end(), shards.begin(), shards.end(), std::back_inserter(common));
    if (common.size() != 1 || replicas.size() * shards.size() != s.world_size)
      return InputError{"/engine/config/mesh", "is no mesh: the groups of rank " + std::to_string(r) + " have " + std::to_string(replicas.size()) + " and " +
                                                   std::to_string(shards.size()) + " ranks, " + std::to_string(common.size()) +
                                                   " of them in both; expected one in both, and a product of world_size"};
  }
  return places_problem(s, config, groups);
}

// A module gathers a chunk of every rank, each as long as the longest, into one buffer, whose places are numbers of 32 bits.
Problem gathered_problem(const Scenario& s, const Fsdp2Config& config) {
  const std::uint32_t shards = shards_of(s, config);
  const std::vector<std::uint32_t> module_of = module_of_parameters(s, config);
  std::map<std::uint32_t, std::uint64_t> gathered;  // by module
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p) {
    std::uint64_t& numel = gathered[module_of[p]] += std::uint64_t{cut_of(s.parameters[p], config, shards).padded_numel()} * shards;
    if (numel > 0xFFFFFFFFull)
      return InputError{"/parameters/" + std::to_string(p), "makes its module gather " + std::to_string(numel) + " elements, padding included; expected less than 2^32"};
  }
  return std::nullopt;
}

Problem option_problem(const Scenario& s, const Fsdp2Config& config) {
  if (Problem problem = units_problem(s, config)) return problem;
  if (Problem problem = mesh_problem(s, config)) return problem;
  const std::vector<std::uint32_t> module_of = module_of_parameters(s, config);
  for (std::size_t i = 0; i < config.nested.size(); ++i) {
    const std::uint32_t p = number_of(s, config.nested[i]);
    if (p == s.parameters.size() || module_of[p] != 0)
      return InputError{"/engine/config/nested/" + std::to_string(i), "is \"" + config.nested[i] + "\"; expected a parameter that is in no unit"};
  }
  for (const auto& [name, rows] : config.rows) {
    const std::uint32_t p = number_of(s, name);
    if (p == s.parameters.size()) return InputError{"/engine/config/rows", "names no parameter: \"" + name + "\""};
    if (s.parameters[p].numel % rows != 0)
      return InputError{"/engine/config/rows/" + name, "is " + std::to_string(rows) + ", which does not divide the " + std::to_string(s.parameters[p].numel) + " elements"};
  }
  if (config.optimizer_in_backward && config.grad_scaler)
    return InputError{"/engine/config/optimizer_in_backward", "steps before a GradScaler could unscale; expected it without grad_scaler"};
  return std::nullopt;
}

// A module gathers its parameters together, in one dtype.
Problem dtype_problem(const Scenario& s, const Fsdp2Config& config) {
  const std::vector<std::uint32_t> module_of = module_of_parameters(s, config);
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p)
    for (std::uint32_t q = 0; q < p; ++q)
      if (module_of[q] == module_of[p] && s.dtype_of(q) != s.dtype_of(p))
        return InputError{"/parameters/" + std::to_string(p) + "/dtype", "differs within a module, whose parameters are gathered together"};
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

std::optional<InputError> fsdp2_refusal(const Scenario& scenario, const Fsdp2Config& config) {
  if (Problem problem = option_problem(scenario, config)) return problem;
  if (Problem problem = model_problem(scenario, "fully_shard")) return problem;
  if (Problem problem = dtype_problem(scenario, config)) return problem;
  if (Problem problem = gathered_problem(scenario, config)) return problem;
  return Script(scenario, config).problem(scenario.script, "/script", false);
}

}  // namespace gradledger::torch::fully_shard
