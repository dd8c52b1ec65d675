#include "sim/frameworks/sharded_modules.h"

#include <algorithm>
#include <iterator>

#include "sim/scenario/layout.h"

namespace gradledger {
namespace {

using Problem = std::optional<InputError>;

// What replicas reduce with each other are the same pieces.
Problem places_problem(const Scenario& s, const Mesh& mesh, const Groups& groups) {
  const auto place = [&](std::uint32_t rank) {
    const auto shards = groups.of(mesh.shard, rank);
    return std::find(shards.begin(), shards.end(), rank) - shards.begin();
  };
  for (std::uint32_t r = 0; r < s.world_size; ++r)
    for (const std::uint32_t replica : groups.of(mesh.replicate, r))
      if (place(replica) != place(r))
        return InputError{"/engine/config/mesh", "is no mesh: ranks " + std::to_string(r) + " and " + std::to_string(replica) + " replicate each other and are number " +
                                                     std::to_string(place(r)) + " and " + std::to_string(place(replica)) + " of their shards; expected the same place in both"};
  return std::nullopt;
}

}  // namespace

std::uint32_t parameter_number(const Scenario& s, const std::string& name) {
  const auto at = std::find_if(s.parameters.begin(), s.parameters.end(), [&](const Parameter& p) { return p.name == name; });
  return static_cast<std::uint32_t>(at - s.parameters.begin());
}

std::uint32_t entries_of(const Scenario& scenario) { return parameter_entry(scenario, static_cast<std::uint32_t>(scenario.parameters.size())); }

std::vector<std::uint32_t> module_of_parameters(const Scenario& scenario, Wrap wrap, const Units& units) {
  std::vector<std::uint32_t> out(scenario.parameters.size(), 0);
  if (!units && wrap == Wrap::layers)
    for (std::uint32_t p = 0, entry = 0; p < out.size(); ++p) out[p] = entry += !scenario.parameters[p].part || scenario.parameters[p].part->number == 0;
  for (std::uint32_t u = 0; units && u < units->size(); ++u)
    for (const std::string& name : (*units)[u])
      for (std::uint32_t p = parameter_number(scenario, name); p < out.size() && scenario.parameters[p].name == name; ++p) out[p] = u + 1;
  return out;
}

// Every parameter once, those of a unit one behind the other: a forward enters a unit once.
Problem units_problem(const Scenario& s, const Units& units) {
  std::vector<bool> named(s.parameters.size());
  for (std::size_t u = 0; units && u < units->size(); ++u) {
    const std::vector<std::string>& unit = (*units)[u];
    for (std::size_t i = 0; i < unit.size(); ++i) {
      const std::string where = "/engine/config/units/" + std::to_string(u) + "/" + std::to_string(i);
      const std::uint32_t p = parameter_number(s, unit[i]);
      if (p == s.parameters.size()) return InputError{where, "names no parameter: \"" + unit[i] + "\""};
      if (named[p]) return InputError{where, "names \"" + unit[i] + "\" again; expected each parameter in one unit"};
      if (i > 0 && parameter_entry(s, p) != parameter_entry(s, parameter_number(s, unit[i - 1])) + 1)
        return InputError{where, "does not follow \"" + unit[i - 1] + "\" in /parameters; expected parameters in their order"};
      named[p] = true;
    }
  }
  return std::nullopt;
}

// Each rank of a shard is in another replica, and the two make up all ranks that average with each other.
Problem mesh_problem(const Scenario& s, const std::optional<Mesh>& mesh, const std::string& over) {
  if (!mesh) return std::nullopt;
  const Groups groups = named_groups(s);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string& name = i == 0 ? mesh->replicate : mesh->shard;
    if (!groups.contains(name)) return InputError{"/engine/config/mesh/" + std::to_string(i), "names no group: \"" + name + "\"; expected one of " + groups.names()};
  }
  for (std::uint32_t r = 0; r < s.world_size; ++r) {
    const auto replicas = groups.of(mesh->replicate, r), shards = groups.of(mesh->shard, r), all = groups.of(over, r);
    const auto inside = [&](const std::vector<std::uint32_t>& set) { return std::includes(all.begin(), all.end(), set.begin(), set.end()); };
    std::vector<std::uint32_t> common;
    std::set_intersection(replicas.begin(), replicas.end(), shards.begin(), shards.end(), std::back_inserter(common));
    if (common.size() != 1 || replicas.size() * shards.size() != all.size() || !inside(replicas) || !inside(shards))
      return InputError{"/engine/config/mesh", "is no mesh: the groups of rank " + std::to_string(r) + " have " + std::to_string(replicas.size()) + " and " +
                                                   std::to_string(shards.size()) + " ranks, " + std::to_string(common.size()) +
                                                   " of them in both; expected one in both, and a product of " + (over == "world" ? "world_size" : "the ranks of " + over)};
  }
  return places_problem(s, *mesh, groups);
}

}  // namespace gradledger
