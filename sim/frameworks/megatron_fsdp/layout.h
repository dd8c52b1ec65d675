// Which parameters share a buffer, where each lies in it, and which ranks share it. Facts of the scenario alone.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/frameworks/megatron_fsdp/config.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/scenario.h"

namespace gradledger::megatron_fsdp {

// Parameters of one unit, or of none, that have a dtype and learn alike. Their elements follow each other; the end is padded where ranks share them.
struct ParameterGroup {
  Dtype dtype = Dtype::float32;
  std::uint32_t unit = 0;  // from 1; 0: of none
  bool requires_grad = true;
  std::vector<std::uint32_t> parameters;
  std::vector<std::uint64_t> begins;  // of each of them
  std::uint64_t used = 0, numel = 0;  // without the padding, and with it
};

// Elements [begin, end) of a parameter.
struct Part {
  std::uint64_t begin = 0, end = 0;

  std::uint64_t numel() const { return end - begin; }
};

struct Layout {
  std::vector<ParameterGroup> groups;
  std::vector<std::uint32_t> group_of;  // by parameter
  ProcessGroup shard, outer;            // ranks that share; ranks that have the same share, this one alone without a mesh
  bool hybrid = false;
  std::uint32_t owner = 0, owners = 1;  // the rank's place among those that step parts of their own

  // What a rank steps of the parameter at that place of the group.
  Part owned(const ParameterGroup& group, std::size_t at) const;
  Part owned_of(std::uint32_t parameter) const;
  // Elements that one of `ranks` has, where they share a group equally.
  static std::uint64_t share(const ParameterGroup& group, std::uint32_t ranks) { return group.numel / ranks; }
};

// How a model is cut into modules, and over which ranks their buffers are.
struct Cut {
  Wrap wrap = Wrap::layers;
  const Units* units = nullptr;
  const std::optional<Mesh>* mesh = nullptr;
  std::uint32_t owners = 1, padded_for = 1;  // ranks that step parts of their own; that a buffer's size is a multiple of
};

// Where the rank stands among the owners is its place in its shard.
Layout layout_over(const Scenario& scenario, const Cut& cut, std::uint32_t rank);

// The ranks of one shard, or all without a mesh.
std::uint32_t shard_size(const Scenario& scenario, const std::optional<Mesh>& mesh);

// Ranks that share gradients; of a mesh those of one shard, unless what is outside of it is sharded too.
std::uint32_t owners_of(const Scenario& scenario, const MegatronFsdpConfig& config);

// Precondition: megatron_fsdp_refusal() has none of the configuration.
Layout layout_of(const Scenario& scenario, const MegatronFsdpConfig& config, std::uint32_t rank);

}  // namespace gradledger::megatron_fsdp
