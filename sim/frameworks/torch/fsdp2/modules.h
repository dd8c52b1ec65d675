// Which parameters fully_shard puts together, in which order a forward meets them, and how each is cut. Facts of the scenario alone.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/frameworks/torch/fsdp2/config.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/scenario.h"

namespace gradledger::torch::fully_shard {

// A parameter is cut along its first dimension into as many chunks as ranks share it, as torch.chunk does: the last ones may be shorter, or empty.
// Collectives take chunks of one length, so that they are padded for them.
struct Cut {
  std::uint64_t rows = 0, row_numel = 1;
  std::uint64_t padded_rows = 0;  // of each chunk

  std::uint64_t padded_numel() const { return padded_rows * row_numel; }
  std::uint64_t offset(std::uint32_t chunk) const;
  std::uint64_t numel(std::uint32_t chunk) const;
};

// Parameters that a forward uses one after the other, of one module.
struct Stretch {
  std::uint32_t module = 0;
  std::vector<std::uint32_t> parameters;
};

// What parallelize_module made of a parameter: a DTensor on the tensor-parallel ranks, or nothing.
enum class Placement : std::uint8_t { plain, shard, replicate };

struct Modules {
  std::vector<std::vector<std::uint32_t>> parameters;  // by module: 0 is the root, then the units; those that the rank has
  std::vector<Stretch> order;                          // as a forward meets them
  std::vector<Cut> cuts;                               // by parameter
  ProcessGroup shard;                                  // ranks that share the parameters
  ProcessGroup replicate;                              // ranks that have the same shard; without a mesh this one alone
  bool hybrid = false;                                 // there is a mesh of replicas and shards
  ProcessGroup tensor;                                 // ranks that the model is cut over; without them this one alone
  std::vector<Placement> placements;                   // by parameter
  std::vector<bool> held;                              // likewise: whether the rank has it
};

// How a parameter is cut among that many ranks.
Cut cut_of(const Parameter& parameter, const Fsdp2Config& config, std::uint32_t chunks);

// How many ranks the model is cut over.
std::uint32_t tensor_parallel_ranks(const Scenario& scenario);

// The dtypes that parameters with gradients compute in, each once.
std::vector<Dtype> computed_dtypes(const Scenario& scenario, const MixedPrecision& given);

// How many ranks share the parameters.
std::uint32_t shards_of(const Scenario& scenario, const Fsdp2Config& config);

// Precondition: fsdp2_refusal() has none.
Modules modules_of(const Scenario& scenario, const Fsdp2Config& config, std::uint32_t rank);

}  // namespace gradledger::torch::fully_shard
