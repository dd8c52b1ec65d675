// What decides the gradients of a model under fully_shard: its arguments, what its methods set before training, how a model is cut into modules,
// and what a loop hangs onto it. Keys are PyTorch's where PyTorch has one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/frameworks/torch/grad_scaler.h"
#include "sim/frameworks/sharded_modules.h"
#include "sim/numeric/dtype.h"

namespace gradledger::torch::fully_shard {

// MixedPrecisionPolicy. Absent: as the parameters are; as they compute.
struct MixedPrecision {
  std::optional<Dtype> param_dtype, reduce_dtype;
  std::map<std::string, Dtype> param_dtype_override_fn;  // by parameter: what the function returns, where that is no None

  // What a parameter computes in whose weight has this dtype.
  Dtype computed(const std::string& parameter, Dtype of_weight) const {
    const auto said = param_dtype_override_fn.find(parameter);
    return said == param_dtype_override_fn.end() ? param_dtype.value_or(of_weight) : said->second;
  }
  bool operator==(const MixedPrecision&) const = default;
};

struct Fsdp2Config {
  std::optional<bool> reshard_after_forward;  // absent: all modules but the root
  MixedPrecision mixed_precision;
  std::optional<Dtype> grad_dtype;  // that the loop gave the parameters before it sharded them; taken over from 2.15 on
  bool offload = false;             // CPUOffloadPolicy
  Wrap wrap = Wrap::layers;
  Units units;
  std::vector<std::string> nested;  // of the root's parameters: those of modules in it that are no units, which PyTorch lists before its own
  std::optional<Mesh> mesh;
  std::vector<std::string> plain;                // parameters that parallelize_module left as they were: no DTensors on the tensor-parallel ranks
  std::map<std::string, std::uint64_t> rows;     // the first dimension of parameters that have more than one; of what a rank has of them
  std::optional<double> gradient_divide_factor;  // of every module
  bool force_sum_reduction_for_comms = false;    // likewise
  bool reduce_scatter_unused_params = false;     // likewise
  bool optimizer_in_backward = false;
  bool clips_a_used_up_generator = false;  // clip_grad_norm_ is given a generator of parameters that something else has gone through: it sees none
  std::optional<GradScalerConfig> grad_scaler;
  // ---- the model
  bool calls_unused_units = false;    // a forward calls modules none of whose parameters it uses
  bool input_requires_grad = false;   // the root's input does
  bool root_parameters_last = false;  // a forward uses those of the root behind its units

  bool operator==(const Fsdp2Config&) const = default;
  std::string json_text() const;
};

}  // namespace gradledger::torch::fully_shard
