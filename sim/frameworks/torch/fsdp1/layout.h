// Which parameters FullyShardedDataParallel joins to a flat one, how it is padded and cut, and in which order a forward meets the modules. Facts of
// the scenario alone.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/frameworks/torch/fsdp1/config.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/scenario.h"

namespace gradledger::torch::flat_sharded {

struct Part {
  std::uint32_t parameter = 0;
  std::uint64_t offset = 0;  // in the flat parameter
  std::uint64_t numel = 0;
};

// A flat parameter. What is between its parts and behind them is padding.
struct Layout {
  std::vector<Part> parts;
  std::uint64_t unpadded_numel = 0;  // of the whole one, with what stands between parts
  std::uint64_t shard_numel = 0;     // of each shard, padded

  // What a shard has of a part: its place in the shard, its place in the parameter, how much; numel 0: nothing.
  struct Piece {
    std::uint64_t offset = 0, parameter_offset = 0, numel = 0;
  };
  Piece piece(const Part& part, std::uint32_t shard) const;
};

// Parameters that a forward uses one after the other, of one module.
struct Stretch {
  std::uint32_t module = 0;
  std::vector<std::uint32_t> parameters;
};

struct Modules {
  std::vector<Layout> layouts;           // by module: 0 is the root, then the units
  std::vector<Stretch> order;            // as a forward meets them
  std::vector<std::uint32_t> module_of;  // by parameter
  ProcessGroup shard;                    // ranks that share the parameters; without shards all ranks
  ProcessGroup replicate;                // of a hybrid strategy: ranks that have the same shard
  std::uint32_t shards = 1;
};

// The strategy that is used: one rank has nothing to shard.
Strategy strategy_of(const Scenario& scenario, const Fsdp1Config& config);
// How many ranks share the parameters.
std::uint32_t shards_of(const Scenario& scenario, const Fsdp1Config& config);

// Precondition: fsdp1_refusal() has none.
Modules modules_of(const Scenario& scenario, const Fsdp1Config& config, std::uint32_t rank);

// How many elements the flat parameter of each module has, gathered and padded.
std::vector<std::uint64_t> gathered_numels(const Scenario& scenario, const Fsdp1Config& config);

}  // namespace gradledger::torch::flat_sharded
