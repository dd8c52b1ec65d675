// A world cut into replicas of a model and shards of each.
#pragma once

#include <cstdint>

#include "sim/scenario/scenario.h"

namespace gradledger::testing {

// Groups of ranks that hold a model together, and of those that hold the same part of it; one replica: no groups.
struct Mesh {
  std::uint32_t replicas = 1, shards = 1;
};

inline Scenario of_mesh(const Mesh& mesh, Scenario scenario) {
  for (std::uint32_t r = 0; r < scenario.world_size; ++r) {
    auto &replicate = scenario.groups["replicate"], &shard = scenario.groups["shard"];
    replicate.resize(mesh.shards);
    shard.resize(mesh.replicas);
    replicate[r % mesh.shards].push_back(r);
    shard[r / mesh.shards].push_back(r);
  }
  return scenario;
}

}  // namespace gradledger::testing
