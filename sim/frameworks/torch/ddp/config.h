// What decides the gradients of a model in DistributedDataParallel: arguments of its constructor, and what a loop hangs onto it. Keys are PyTorch's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/frameworks/torch/grad_scaler.h"

namespace gradledger::torch {

// torch.distributed.algorithms.ddp_comm_hooks. A wrapper is the one around allreduce_hook. sum: a loop's own hook that adds up over ranks and leaves
// the division out.
enum class CommHook : std::uint8_t { none, allreduce, fp16_compress, bf16_compress, fp16_wrapper, bf16_wrapper, noop, sum, power_sgd };

// What PowerSGDState is made with.
struct PowerSgdConfig {
  std::uint64_t matrix_approximation_rank = 1;
  std::uint32_t start_powerSGD_iter = 1000;
  double min_compression_rate = 2;
  bool use_error_feedback = true;
  bool warm_start = true;

  bool operator==(const PowerSgdConfig&) const = default;
};

// delay_all_reduce_named_params and param_to_hook_all_reduce: parameters by name.
struct DelayedAllReduce {
  std::vector<std::string> parameters;
  std::string hook;

  bool operator==(const DelayedAllReduce&) const = default;
};

struct DdpConfig {
  std::optional<double> bucket_cap_mb;     // absent: 25, and 1 for the first bucket
  std::vector<double> bucket_cap_mb_list;  // empty: bucket_cap_mb rules
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = false;
  bool static_graph = false;
  bool batched_grad_copy = false;
  bool lazy_bucket_allocation = false;
  bool skip_all_reduce_unused_params = false;
  CommHook comm_hook = CommHook::none;
  std::optional<PowerSgdConfig> power_sgd;    // of comm_hook power_sgd
  std::map<std::string, std::uint64_t> rows;  // the first dimension of parameters that have more than one
  std::vector<std::string> plain;             // parameters that are no DTensors on the tensor-parallel ranks: those of modules that a loop cut itself
  bool optimizer_in_backward = false;         // _apply_optimizer_in_backward: the wrapper runs it behind each bucket's reduction
  bool post_accumulate_grad_hook = false;     // the loop's own hook of each parameter steps, before the reducer sees the gradient
  bool backward_in_forward = false;           // the loop runs backwards inside the wrapper's forward, and prepares the reducer itself: their graphs do not pass the sink
  std::optional<DelayedAllReduce> delay_all_reduce;
  std::optional<GradScalerConfig> grad_scaler;

  bool steps_inside_backwards() const { return optimizer_in_backward || post_accumulate_grad_hook; }
  bool is_plain(const std::string& name) const { return std::find(plain.begin(), plain.end(), name) != plain.end(); }
  // Whether each backward walks the graph for parameters that it will not reach.
  bool searches_unused() const { return find_unused_parameters && !static_graph; }
  bool operator==(const DdpConfig&) const = default;
  std::string json_text() const;
};

}  // namespace gradledger::torch
