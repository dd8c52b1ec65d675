// How a model is cut into modules that PyTorch's wrappers shard on their own, and the mesh of ranks that they are sharded over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/result.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// Where no units are named: each parameter a module that is sharded on its own, or all of them with the root.
enum class Wrap : std::uint8_t { layers, root };

// The modules that are sharded on their own, by the names of their parameters; the root has the rest.
using Units = std::optional<std::vector<std::vector<std::string>>>;

// A mesh of two dimensions, by the names of the scenario's groups.
struct Mesh {
  std::string replicate, shard;

  bool operator==(const Mesh&) const = default;
};

// The number of a parameter; that of all parameters where none has the name.
std::uint32_t parameter_number(const Scenario& scenario, const std::string& name);

// How many entries of /parameters there are: parts over ranks are one.
std::uint32_t entries_of(const Scenario& scenario);

// The number of the unit that each parameter is in, from 1; 0: the root's. Names that are no parameter's are left out.
std::vector<std::uint32_t> module_of_parameters(const Scenario& scenario, Wrap wrap, const Units& units);

// Errors: a unit does not name parameters that follow each other, each once.
std::optional<InputError> units_problem(const Scenario& scenario, const Units& units);
// Errors: the groups are none, or do not make up a mesh of all ranks that average with each other, or ranks that replicate each other have other places in
// their shards. over: the group of those that average.
std::optional<InputError> mesh_problem(const Scenario& scenario, const std::optional<Mesh>& mesh, const std::string& over = "world");

}  // namespace gradledger
