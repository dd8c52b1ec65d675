// What decides gradients in Megatron-Core: options of DistributedDataParallelConfig, OptimizerConfig and TransformerConfig, with their names and
// defaults there, attributes of parameters, and what the schedule is called with.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gradledger::megatron {

struct DdpOptions {
  bool grad_reduce_in_fp32 = false;
  bool overlap_grad_reduce = false;
  bool overlap_param_gather = false;
  bool use_distributed_optimizer = false;
  bool check_for_nan_in_grad = false;
  bool average_in_collective = false;
  bool pad_buckets_for_high_nccl_busbw = false;
  std::uint32_t num_distributed_optimizer_instances = 1;
  std::optional<std::uint64_t> bucket_size;  // elements; absent: max(40000000, 1000000 x data-parallel ranks)

  bool operator==(const DdpOptions&) const = default;
};

struct OptimizerOptions {
  double clip_grad = 1.0;            // 0: not clipped
  std::optional<double> loss_scale;  // a constant one
  double initial_loss_scale = 4294967296.0;
  double min_loss_scale = 1.0;
  std::uint32_t loss_scale_window = 1000;
  std::uint32_t hysteresis = 2;
  bool log_num_zeros_in_grad = false;

  bool operator==(const OptimizerOptions&) const = default;
};

struct ModelOptions {
  bool calculate_per_token_loss = false;
  bool sequence_parallel = false;

  bool operator==(const ModelOptions&) const = default;
};

// Attributes that Megatron sets on a parameter, by their names there.
struct Attributes {
  bool sequence_parallel = false;
  bool tensor_model_parallel = false;
  bool average_gradients_across_tp_domain = false;
  bool shared_embedding = false;
  bool shared = false;                        // the last stage has a copy, which is left out of norms
  bool gradient_accumulation_fusion = false;  // its kernel adds to main_grad itself
  bool used_twice = false;                    // in every forward, as a layer that is repeated for two depths: the backward comes to the second use first

  bool operator==(const Attributes&) const = default;
};

// What a loss function returns.
enum class LossReturns : std::uint8_t { mean, sum_and_tokens };

// The loop calls a schedule, which divides losses and counts tokens. Absent: the loop calls backward itself.
struct ScheduleOptions {
  std::uint32_t num_microbatches = 1;
  LossReturns loss = LossReturns::mean;
  bool grad_sync_func = false;                                      // a stage calls start_grad_sync behind its backwards, as align_grad_reduce has it
  std::vector<std::vector<std::string>> model_chunks;               // of each, the parameters, of all stages; empty: the model is one
  std::optional<std::uint32_t> microbatch_group_size_per_vp_stage;  // absent: as many as there are stages

  bool interleaved() const { return !model_chunks.empty(); }
  std::uint32_t chunks() const { return interleaved() ? static_cast<std::uint32_t>(model_chunks.size()) : 1; }
  // Of one call, each of one chunk.
  std::uint32_t backwards() const { return num_microbatches * chunks(); }
  // Micro-batches that go through a chunk before the next one has its turn. Without chunks: all.
  std::uint32_t group_size(std::uint32_t stages) const { return interleaved() ? microbatch_group_size_per_vp_stage.value_or(stages) : num_microbatches; }
  // The one that a parameter is in.
  std::uint32_t chunk_of(const std::string& parameter) const;

  bool operator==(const ScheduleOptions&) const = default;
};

struct MegatronConfig {
  DdpOptions ddp;
  OptimizerOptions optimizer;
  ModelOptions model;
  std::map<std::string, Attributes> parameters;  // by name, where they have any
  std::optional<ScheduleOptions> schedule;

  Attributes attributes_of(const std::string& parameter) const {
    const auto found = parameters.find(parameter);
    return found == parameters.end() ? Attributes{} : found->second;
  }
  std::uint32_t chunk_of(const std::string& parameter) const { return schedule ? schedule->chunk_of(parameter) : 0; }
  bool operator==(const MegatronConfig&) const = default;
  std::string json_text() const;
};

}  // namespace gradledger::megatron
