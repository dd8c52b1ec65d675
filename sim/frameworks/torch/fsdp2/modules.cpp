#include "sim/frameworks/torch/fsdp2/modules.h"

#include <algorithm>

namespace gradledger::torch::fully_shard {

Cut cut_of(const Parameter& parameter, const Fsdp2Config& config, std::uint32_t chunks) {
  const auto given = config.rows.find(parameter.name);
  Cut out;
  out.rows = given == config.rows.end() ? parameter.numel : given->second;
  out.row_numel = out.rows == 0 ? 1 : parameter.numel / out.rows;
  out.padded_rows = (out.rows + chunks - 1) / chunks;
  return out;
}

namespace {

std::vector<Stretch> order_of(const std::vector<std::uint32_t>& module_of, const std::vector<bool>& held, bool root_last) {
  std::vector<Stretch> out;
  for (std::uint32_t p = 0; p < module_of.size(); ++p) {
    if (!held[p]) continue;
    if (out.empty() || out.back().module != module_of[p]) out.push_back({module_of[p], {}});
    out.back().parameters.push_back(p);
  }
  if (root_last && !out.empty() && out.front().module == 0) std::rotate(out.begin(), out.begin() + 1, out.end());
  return out;
}

}  // namespace

std::uint64_t Cut::offset(std::uint32_t chunk) const { return std::min(chunk * padded_rows, rows) * row_numel; }

std::uint64_t Cut::numel(std::uint32_t chunk) const { return offset(chunk + 1) - offset(chunk); }

std::uint32_t shards_of(const Scenario& scenario, const Fsdp2Config& config) {
  const Groups groups = named_groups(scenario);
  const std::string over = config.mesh && groups.contains(config.mesh->shard) ? config.mesh->shard : averaging_group(scenario);
  return static_cast<std::uint32_t>(groups.of(over, 0).size());
}

std::uint32_t tensor_parallel_ranks(const Scenario& scenario) { return scenario.layout ? scenario.layout->size("tp") : 1; }

std::vector<Dtype> computed_dtypes(const Scenario& scenario, const MixedPrecision& given) {
  std::vector<Dtype> out;
  for (std::uint32_t p = 0; p < scenario.parameters.size(); ++p) {
    const Dtype computed = given.computed(scenario.parameters[p].name, scenario.dtype_of(p));
    if (scenario.parameters[p].has_gradient() && std::find(out.begin(), out.end(), computed) == out.end()) out.push_back(computed);
  }
  return out;
}

namespace {

Placement placement_of(const Scenario& scenario, const Fsdp2Config& config, std::uint32_t p) {
  const bool plain = std::find(config.plain.begin(), config.plain.end(), scenario.parameters[p].name) != config.plain.end();
  if (plain || tensor_parallel_ranks(scenario) == 1) return Placement::plain;
  return scenario.parameters[p].part ? Placement::shard : Placement::replicate;
}

}  // namespace

Modules modules_of(const Scenario& scenario, const Fsdp2Config& config, std::uint32_t rank) {
  Modules out;
  const std::vector<std::uint32_t> module_of = module_of_parameters(scenario, config.wrap, config.units);
  out.parameters.resize(1 + (config.units ? config.units->size() : config.wrap == Wrap::layers ? entries_of(scenario) : 0));
  for (std::uint32_t p = 0; p < module_of.size(); ++p) {
    out.held.push_back(holds(scenario, rank, p));
    out.placements.push_back(placement_of(scenario, config, p));
    if (out.held[p]) out.parameters[module_of[p]].push_back(p);
  }
  out.order = order_of(module_of, out.held, config.root_parameters_last);
  const auto is_nested = [&](std::uint32_t p) { return std::find(config.nested.begin(), config.nested.end(), scenario.parameters[p].name) != config.nested.end(); };
  std::stable_partition(out.parameters[0].begin(), out.parameters[0].end(), is_nested);
  const Groups groups = named_groups(scenario);
  out.hybrid = config.mesh.has_value();
  out.shard = group_named(scenario, groups, out.hybrid ? config.mesh->shard : averaging_group(scenario), rank);
  out.replicate = group_named(scenario, groups, out.hybrid ? config.mesh->replicate : "rank", rank);
  out.tensor = group_named(scenario, groups, tensor_parallel_ranks(scenario) > 1 ? "tp" : "rank", rank);
  for (const Parameter& parameter : scenario.parameters) out.cuts.push_back(cut_of(parameter, config, out.shard.size()));
  return out;
}

}  // namespace gradledger::torch::fully_shard
