// One recorded run of Megatron-Core, as its file says it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/scenario/workload.h"
#include "conformance/differences.h"
#include "conformance/fields.h"

namespace gradledger::conform::megatron {

struct Snapshot {
  std::string dtype;
  std::vector<double> values;
};

// What the host knows of a bucket group. Absent: the release does not have it, or does not show it.
struct GroupState {
  std::optional<bool> is_last_microbatch, is_first_batch, param_gather_dispatched, grad_reduce_finished, grad_reduce_handle, param_gather_handle;
  std::map<std::string, std::uint32_t> ready;  // by parameter: how often
  std::optional<std::map<std::string, std::uint32_t>> golden;

  bool operator==(const GroupState&) const = default;
};

struct Moment {
  std::map<std::string, Snapshot> buffers;
  std::map<std::string, GroupState> groups;
  std::map<std::string, std::uint32_t> padding_nonzero;  // by buffer
  std::vector<Collective> collectives;
  std::vector<std::vector<double>> weights;  // of the rank's parameters, after a step
  std::string error;
  std::optional<bool> updated;
  std::optional<double> norm, loss_scale, zeros;
};

struct BufferLayout {
  std::string param_dtype, grad_dtype;
  std::uint64_t numel = 0, numel_unpadded = 0;
  std::vector<std::vector<double>> buckets;  // [begin, end]
  double scaling = 1;
  std::vector<std::uint32_t> ranks;
  std::map<std::string, std::vector<double>> places;  // by parameter: begin, end, bucket

  bool operator==(const BufferLayout&) const = default;
};

struct Parameter {
  std::string name;
  std::uint64_t numel = 0, uses = 1;
  std::vector<std::uint32_t> stages;  // empty: it is on every rank
  bool expert = false, frozen = false;
  std::vector<std::string> attributes;
};

struct Plant {
  std::int32_t rank = 0;  // -1: all
  std::uint32_t micro_batch = 0;
  std::string parameter;
  double value = 0;
};

struct RankRun {
  std::vector<BufferLayout> layout;
  std::string refusal;
  std::vector<Moment> moments;  // by operation, up to one that raised
};

struct Run {
  std::string name, version;
  std::uint32_t world = 1;
  std::vector<Parameter> parameters;
  std::string dtype;
  nlohmann::json config, operations;
  std::map<std::string, std::uint32_t> parallel;
  std::optional<Plant> plant;
  double grad_scale = 1;
  GivenValues gradients;  // [micro_batch][rank], parameters concatenated
  std::vector<RankRun> ranks;
};

// Whether a line of a file is such a run.
bool is_megatron_run(const nlohmann::json& line);
// Errors: a JSON pointer, and what would be right there.
Result<Run> read_megatron_run(const nlohmann::json& line);

}  // namespace gradledger::conform::megatron
