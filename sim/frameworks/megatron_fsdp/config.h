// What decides gradients in Megatron-FSDP: arguments of megatron_fsdp.fully_shard, by their names there, and how a model is cut into units.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sim/frameworks/sharded_modules.h"
#include "sim/numeric/dtype.h"

namespace gradledger::megatron_fsdp {

// zero_dp_strategy, by its number there.
enum class Strategy : std::uint8_t { no_shard, optim, optim_grads, optim_grads_params };

// MixedPrecisionPolicy. Absent: the weights that compute are stepped themselves; gradients as parameters; reduced as they are kept.
struct MixedPrecision {
  std::optional<Dtype> main_params_dtype = Dtype::float32;
  std::optional<Dtype> main_grads_dtype, grad_comm_dtype;

  bool operator==(const MixedPrecision&) const = default;
};

struct MegatronFsdpConfig {
  Strategy zero_dp_strategy = Strategy::optim_grads_params;
  bool outer_sharding = false;  // outer_dp_sharding_strategy: optim
  bool sync_model_each_microbatch = true;
  bool fully_shard_optimizer = true;  // false: the optimizer is Megatron-Core's, whose step() neither ends a reduction nor was taken before
  bool overlap_grad_reduce = true;
  bool average_in_collective = false;
  bool calculate_per_token_loss = false;
  MixedPrecision mixed_precision;
  Wrap wrap = Wrap::layers;
  Units units;
  std::optional<Mesh> mesh;

  bool shards_gradients() const { return zero_dp_strategy >= Strategy::optim_grads; }
  bool operator==(const MegatronFsdpConfig&) const = default;
  std::string json_text() const;
};

}  // namespace gradledger::megatron_fsdp
