#include "sim/frameworks/torch/fsdp1/layout.h"

#include <algorithm>

namespace gradledger::torch::flat_sharded {
namespace {

// Original parameters that are views of the flat one begin at multiples of this many bytes, in the dtype in which they compute.
constexpr std::uint64_t alignment_bytes = 16;

std::uint64_t rounded_up(std::uint64_t numel, std::uint64_t multiple) { return (numel + multiple - 1) / multiple * multiple; }

// A hybrid strategy whose shards are whole: it is taken for NO_SHARD, and reduces within the shard, which is the rank itself.
bool has_whole_shards(const Scenario& s, const Fsdp1Config& config) {
  if (!config.mesh) return false;
  const Groups groups = named_groups(s);
  return groups.contains(config.mesh->shard) && groups.of(config.mesh->shard, 0).size() == 1;
}

// Ranks of the group that reduces: with NO_SHARD there are several, and nothing is cut.
std::uint32_t ranks_of_group(const Scenario& s, const Fsdp1Config& config) {
  return strategy_of(s, config) == Strategy::no_shard && !has_whole_shards(s, config) ? s.world_size : shards_of(s, config);
}

// Padding comes before each parameter but the first, and behind the last up to a multiple of the ranks.
std::uint64_t place_parts(const Scenario& s, const Fsdp1Config& config, const std::vector<std::uint32_t>& parameters, std::vector<Part>* into) {
  std::uint64_t at = 0;
  for (const std::uint32_t p : parameters) {
    if (config.use_orig_params) at = rounded_up(at, alignment_bytes / size_of(config.mixed_precision.param_dtype.value_or(s.dtype_of(p))));
    if (into != nullptr) into->push_back({p, at, s.parameters[p].numel});
    at += s.parameters[p].numel;
  }
  return config.use_orig_params ? rounded_up(at, ranks_of_group(s, config)) : at;
}

std::vector<std::vector<std::uint32_t>> parameters_of_modules(const Scenario& s, const Fsdp1Config& config) {
  const std::vector<std::uint32_t> module_of = module_of_parameters(s, config.wrap, config.units);
  std::vector<std::vector<std::uint32_t>> out(1 + (config.units ? config.units->size() : config.wrap == Wrap::layers ? s.parameters.size() : 0));
  for (std::uint32_t p = 0; p < module_of.size(); ++p) out[module_of[p]].push_back(p);
  return out;
}

}  // namespace

Layout::Piece Layout::piece(const Part& part, std::uint32_t shard) const {
  const std::uint64_t begin = std::uint64_t{shard} * shard_numel, end = begin + shard_numel;
  const std::uint64_t first = std::max<std::uint64_t>(begin, part.offset), last = std::min(end, std::uint64_t{part.offset} + part.numel);
  if (first >= last) return {};
  return {first - begin, first - part.offset, last - first};
}

Strategy strategy_of(const Scenario& scenario, const Fsdp1Config& config) {
  return scenario.world_size == 1 || has_whole_shards(scenario, config) ? Strategy::no_shard : config.strategy;
}

std::uint32_t shards_of(const Scenario& scenario, const Fsdp1Config& config) {
  if (strategy_of(scenario, config) == Strategy::no_shard) return 1;
  const Groups groups = named_groups(scenario);
  if (!config.mesh || !groups.contains(config.mesh->shard)) return scenario.world_size;
  return static_cast<std::uint32_t>(groups.of(config.mesh->shard, 0).size());
}

std::vector<std::uint64_t> gathered_numels(const Scenario& scenario, const Fsdp1Config& config) {
  const std::uint32_t shards = shards_of(scenario, config);
  std::vector<std::uint64_t> out;
  for (const auto& parameters : parameters_of_modules(scenario, config)) out.push_back(rounded_up(place_parts(scenario, config, parameters, nullptr), shards));
  return out;
}

Modules modules_of(const Scenario& scenario, const Fsdp1Config& config, std::uint32_t rank) {
  Modules out;
  out.shards = shards_of(scenario, config);
  out.module_of = module_of_parameters(scenario, config.wrap, config.units);
  for (const auto& parameters : parameters_of_modules(scenario, config)) {
    Layout& layout = out.layouts.emplace_back();
    layout.unpadded_numel = place_parts(scenario, config, parameters, &layout.parts);
    layout.shard_numel = rounded_up(layout.unpadded_numel, out.shards) / out.shards;
  }
  for (std::uint32_t p = 0; p < out.module_of.size(); ++p) {
    if (out.order.empty() || out.order.back().module != out.module_of[p]) out.order.push_back({out.module_of[p], {}});
    out.order.back().parameters.push_back(p);
  }
  const Groups groups = named_groups(scenario);
  const bool meshed = config.mesh && scenario.world_size > 1;
  out.shard = group_named(scenario, groups, meshed ? config.mesh->shard : "world", rank);
  out.replicate = group_named(scenario, groups, meshed ? config.mesh->replicate : "rank", rank);
  return out;
}

}  // namespace gradledger::torch::flat_sharded
