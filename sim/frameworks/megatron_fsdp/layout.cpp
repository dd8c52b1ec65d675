#include "sim/frameworks/megatron_fsdp/layout.h"

#include <algorithm>

namespace gradledger::megatron_fsdp {
namespace {

std::uint32_t size_of_group(const Scenario& scenario, const std::string& name) {
  const Groups groups = named_groups(scenario);
  return groups.contains(name) ? static_cast<std::uint32_t>(groups.of(name, 0).size()) : scenario.world_size;
}

// Those of no unit come first, as a module lists its own parameters before those of the modules in it.
std::vector<std::uint32_t> in_order_of_modules(const std::vector<std::uint32_t>& unit_of) {
  std::vector<std::uint32_t> out(unit_of.size());
  for (std::uint32_t p = 0; p < out.size(); ++p) out[p] = p;
  std::stable_sort(out.begin(), out.end(), [&](std::uint32_t a, std::uint32_t b) { return unit_of[a] < unit_of[b]; });
  return out;
}

}  // namespace

Part Layout::owned(const ParameterGroup& group, std::size_t at) const {
  const std::uint64_t part = share(group, owners), from = part * owner, begin = group.begins[at];
  const std::uint64_t length = (at + 1 < group.begins.size() ? group.begins[at + 1] : group.used) - begin;
  const std::uint64_t first = std::clamp(from, begin, begin + length), last = std::clamp(from + part, begin, begin + length);
  return {first - begin, last - begin};
}

Part Layout::owned_of(std::uint32_t parameter) const {
  const ParameterGroup& group = groups[group_of[parameter]];
  return owned(group, static_cast<std::size_t>(std::find(group.parameters.begin(), group.parameters.end(), parameter) - group.parameters.begin()));
}

std::uint32_t shard_size(const Scenario& scenario, const std::optional<Mesh>& mesh) { return mesh ? size_of_group(scenario, mesh->shard) : scenario.world_size; }

std::uint32_t owners_of(const Scenario& scenario, const MegatronFsdpConfig& config) {
  if (config.zero_dp_strategy == Strategy::no_shard) return 1;
  return config.outer_sharding ? scenario.world_size : shard_size(scenario, config.mesh);
}

Layout layout_over(const Scenario& scenario, const Cut& cut, std::uint32_t rank) {
  Layout out;
  const std::vector<std::uint32_t> unit_of = module_of_parameters(scenario, cut.wrap, *cut.units);
  out.group_of.resize(unit_of.size());
  for (const std::uint32_t p : in_order_of_modules(unit_of)) {
    const auto same = [&](const ParameterGroup& g) { return g.dtype == scenario.dtype_of(p) && g.unit == unit_of[p] && g.requires_grad == scenario.parameters[p].trainable; };
    auto at = std::find_if(out.groups.begin(), out.groups.end(), same);
    if (at == out.groups.end()) at = out.groups.insert(at, {scenario.dtype_of(p), unit_of[p], scenario.parameters[p].trainable, {}, {}, 0, 0});
    at->parameters.push_back(p);
    at->begins.push_back(at->used);
    at->used += scenario.parameters[p].numel;
    out.group_of[p] = static_cast<std::uint32_t>(at - out.groups.begin());
  }
  const Groups named = named_groups(scenario);
  const std::optional<Mesh>& mesh = *cut.mesh;
  out.hybrid = mesh.has_value();
  out.shard = group_named(scenario, named, out.hybrid ? mesh->shard : "world", rank);
  out.outer = group_named(scenario, named, out.hybrid ? mesh->replicate : "rank", rank);
  out.owners = cut.owners;
  if (out.owners > 1) out.owner = out.shard.index_of(rank);
  for (ParameterGroup& group : out.groups) group.numel = (group.used + cut.padded_for - 1) / cut.padded_for * cut.padded_for;
  return out;
}

Layout layout_of(const Scenario& scenario, const MegatronFsdpConfig& config, std::uint32_t rank) {
  const std::uint32_t owners = owners_of(scenario, config);
  Layout out = layout_over(scenario, {config.wrap, &config.units, &config.mesh, owners, owners}, rank);
  if (config.outer_sharding) out.owner = out.shard.index_of(rank) * out.outer.size() + out.outer.index_of(rank);
  return out;
}

}  // namespace gradledger::megatron_fsdp
