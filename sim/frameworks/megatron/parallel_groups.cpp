#include "sim/frameworks/megatron/parallel_groups.h"

#include <algorithm>
#include <string>
#include <utility>

namespace gradledger::megatron {
namespace {

using Ranks = std::vector<std::uint32_t>;

// What the scenario states; else the layout's stages and shares of experts; else the rank by itself.
Ranks stated(const Scenario& s, const std::string& name, std::uint32_t rank) {
  const auto groups = s.groups.find(name);
  if (groups == s.groups.end() && name == "pp" && s.engine.pipeline_stages > 1) return model_parallel_group(s, rank).ranks;
  if (groups == s.groups.end() && name == "ep" && s.engine.expert_parallel_size > 1) return expert_parallel_group(s, rank).ranks;
  if (groups == s.groups.end()) return {rank};
  for (Ranks group : groups->second) {
    std::sort(group.begin(), group.end());
    if (std::binary_search(group.begin(), group.end(), rank)) return group;
  }
  return {rank};
}

std::uint32_t place_in(const Ranks& group, std::uint32_t rank) { return static_cast<std::uint32_t>(std::lower_bound(group.begin(), group.end(), rank) - group.begin()); }
std::uint32_t place(const Scenario& s, const char* name, std::uint32_t rank) { return place_in(stated(s, name, rank), rank); }

// The ranks that have the same place as a rank in every one of these groups.
Ranks alike(const Scenario& s, std::initializer_list<const char*> names, std::uint32_t rank) {
  Ranks out;
  for (std::uint32_t r = 0; r < s.world_size; ++r)
    if (std::all_of(names.begin(), names.end(), [&](const char* name) { return place(s, name, r) == place(s, name, rank); })) out.push_back(r);
  return out;
}

// Their number in the scenario's groups; no_group for a rank by itself that has none.
ProcessGroup group_of(const Scenario& s, Ranks ranks) {
  const auto groups = process_groups(s);
  ProcessGroup out{ParallelGroups::no_group, std::move(ranks)};
  for (std::uint32_t id = 0; id < groups.size(); ++id)
    if (groups[id] == out.ranks) {
      out.id = id;
      break;
    }
  return out;
}

Ranks joined(const Scenario& s, const Ranks& ranks, const char* name) {
  Ranks out;
  for (const std::uint32_t r : ranks)
    for (const std::uint32_t other : stated(s, name, r)) out.push_back(other);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// A group of data-parallel ranks, cut into as many parts as there are instances: the rank's part, and the ranks with its place in the others.
std::pair<Ranks, Ranks> cut(const Ranks& group, std::uint32_t instances, std::uint32_t rank) {
  const auto part = static_cast<std::uint32_t>(group.size()) / instances;
  const std::uint32_t at = place_in(group, rank);
  Ranks inside, across;
  for (std::uint32_t i = 0; i < group.size(); ++i) {
    if (i / part == at / part) inside.push_back(group[i]);
    if (i % part == at % part) across.push_back(group[i]);
  }
  return {inside, across};
}

}  // namespace

std::vector<std::uint32_t> pipeline_of(const Scenario& s, std::uint32_t rank) { return stated(s, "pp", rank); }

std::optional<InputError> instances_problem(const Scenario& s, std::uint32_t instances) {
  const auto refused = [](const std::string& why) { return InputError{"/engine/config/ddp/num_distributed_optimizer_instances", why}; };
  if (instances == 0) return refused("is 0; expected at least 1");
  for (std::uint32_t r = 0; instances > 1 && r < s.world_size; ++r)
    if (const std::size_t ranks = alike(s, {"tp", "pp"}, r).size(); ranks % instances != 0)
      return refused("is " + std::to_string(instances) + ", which does not divide the " + std::to_string(ranks) + " data-parallel ranks of rank " + std::to_string(r) +
                     "; expected a divisor of them");
  return std::nullopt;
}

ParallelGroups parallel_groups(const Scenario& s, std::uint32_t instances, std::uint32_t rank) {
  ParallelGroups out;
  const auto of = [&](Ranks ranks) { return group_of(s, std::move(ranks)); };
  out.tensor = of(stated(s, "tp", rank));
  out.pipeline = of(stated(s, "pp", rank));
  out.context = of(stated(s, "cp", rank));
  out.expert = of(stated(s, "ep", rank));
  out.data = of(alike(s, {"tp", "pp", "cp"}, rank));
  out.data_context = of(alike(s, {"tp", "pp"}, rank));
  out.expert_data = of(alike(s, {"tp", "pp", "ep"}, rank));
  const Ranks model = joined(s, stated(s, "tp", rank), "pp");
  out.model = of(model);
  out.expert_model = of(joined(s, model, "ep"));
  const auto [inside, across] = cut(out.data_context.ranks, instances, rank);
  out.instance = of(inside);
  out.between_instances = of(across);
  Ranks of_instance;
  for (std::uint32_t r = 0; r < s.world_size; ++r) {
    const Ranks group = alike(s, {"tp", "pp"}, r);
    const std::uint32_t part = static_cast<std::uint32_t>(group.size()) / instances;
    if (place_in(group, r) / part == place_in(out.data_context.ranks, rank) / part) of_instance.push_back(r);
  }
  out.of_instance = of(of_instance);
  out.stage = place(s, "pp", rank);
  Ranks ends{out.pipeline.ranks.front(), out.pipeline.ranks.back()};
  if (ends.front() == ends.back()) ends.pop_back();
  out.embedding = of(ends);
  return out;
}

std::optional<InputError> parallel_problem(const Scenario& s, std::uint32_t instances) {
  for (const char* name : {"tp", "cp", "pp", "ep"}) {
    const auto groups = s.groups.find(name);
    if (groups == s.groups.end()) continue;
    for (const Ranks& group : groups->second)
      if (group.size() != groups->second.front().size()) return InputError{std::string("/groups/") + name, "has groups of different size; expected as many ranks in each"};
  }
  if (auto problem = instances_problem(s, instances)) return problem;
  for (std::uint32_t r = 0; r < s.world_size; ++r) {
    const ParallelGroups g = parallel_groups(s, instances, r);
    const std::pair<const char*, const ProcessGroup*> met[] = {{"dp_cp", &g.data_context},      {"expert_dp", &g.expert_data}, {"mp", &g.model},
                                                               {"expert_mp", &g.expert_model},  {"instance", &g.instance},     {"between_instances", &g.between_instances},
                                                               {"of_instance", &g.of_instance}, {"embedding", &g.embedding}};
    for (const auto& [name, group] : met)
      if (group->id == ParallelGroups::no_group && group->size() > 1) {
        std::string ranks;
        for (const std::uint32_t rank : group->ranks) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
        return InputError{"/groups", std::string("name no group of ranks ") + ranks + ", which meet; expected one more, \"" + name + "\""};
      }
  }
  return std::nullopt;
}

}  // namespace gradledger::megatron
