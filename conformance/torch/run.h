// One recorded run of PyTorch's DistributedDataParallel, FullyShardedDataParallel or fully_shard, or of Megatron-FSDP, as its file says it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/scenario/workload.h"
#include "conformance/differences.h"
#include "conformance/fields.h"
#include "conformance/run.h"

namespace gradledger::conform::torch {

struct Snapshot {
  std::string dtype;
  std::vector<double> values;
  std::optional<std::uint32_t> bucket_view_offset;  // where it is a slice of larger storage
  std::uint64_t offset = 0;                         // its first element, in its parameter
};

// Values of what a rank has of a parameter.
struct Weights {
  std::uint32_t parameter = 0;
  std::uint64_t offset = 0;  // of the first, in the parameter
  std::string dtype;
  std::vector<double> values;
};

struct Transfer {
  std::vector<double> in, out;
};

struct Moment {
  std::map<std::string, Snapshot> buffers;
  std::vector<Collective> collectives;
  std::map<std::uint32_t, Transfer> transfers;  // by place among the collectives
  std::vector<Weights> weights, applied;
  std::string error;
  std::optional<double> norm, loss_scale;
};

struct Run {
  std::string name, version;
  std::string framework;  // "ddp", "fsdp1", "fsdp2", "megatron-fsdp", "megatron-fsdp-v2"
  std::uint32_t world = 1;
  std::vector<std::uint32_t> sizes;
  std::vector<std::uint32_t> rows;      // of each parameter: its first dimension
  std::uint32_t in_root = 0;            // parameters of the root, which come first
  std::vector<std::uint32_t> in_units;  // parameters of each unit
  bool root_at_end = false;
  bool input_requires_grad = false;
  std::string dtype;
  std::vector<std::string> dtypes;  // by parameter; empty: all as the model
  nlohmann::json config, operations;
  GivenValues gradients;                   // [micro_batch][rank], parameters concatenated
  std::string refusal;                     // the wrapper's, of every rank
  std::string ended_by;                    // what ended a rank's process
  std::vector<std::vector<Moment>> ranks;  // [rank][operation], up to what ended the rank
};

// Whether a line of a file is such a run.
bool is_torch_run(const nlohmann::json& line);
// Errors: a JSON pointer, and what would be right there.
Result<Run> read_torch_run(const nlohmann::json& line);

}  // namespace gradledger::conform::torch
