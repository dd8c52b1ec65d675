// What decides the gradients of a model under FullyShardedDataParallel: its arguments, how a model is cut into instances, and what a loop hangs onto
// it. Keys are PyTorch's where PyTorch has one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sim/frameworks/torch/grad_scaler.h"
#include "sim/frameworks/sharded_modules.h"
#include "sim/numeric/dtype.h"

namespace gradledger::torch::flat_sharded {

enum class Strategy : std::uint8_t { full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2 };
enum class BackwardPrefetch : std::uint8_t { pre, post, none };

// MixedPrecision. Absent: as the parameters are; as they compute.
struct MixedPrecision {
  std::optional<Dtype> param_dtype, reduce_dtype;
  bool keep_low_precision_grads = false;

  bool operator==(const MixedPrecision&) const = default;
};

struct Fsdp1Config {
  Strategy strategy = Strategy::full_shard;
  bool use_orig_params = false;
  MixedPrecision mixed_precision;
  bool offload = false;  // CPUOffload(offload_params=True)
  bool computes_on_cpu = false;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::pre;
  bool forward_prefetch = false;
  bool limit_all_gathers = true;
  Wrap wrap = Wrap::layers;
  Units units;
  std::optional<Mesh> mesh;
  std::optional<GradScalerConfig> grad_scaler;
  bool plain_grad_scaler = false;   // torch.amp.GradScaler, which asks no other rank
  bool calls_unused_units = false;  // a forward calls modules none of whose parameters it uses

  bool operator==(const Fsdp1Config&) const = default;
  std::string json_text() const;

  bool hybrid() const { return strategy == Strategy::hybrid_shard || strategy == Strategy::hybrid_shard_zero2; }
  // Where parameters that are on the host are not where modules compute.
  bool over_the_bus() const { return offload && !computes_on_cpu; }
};

}  // namespace gradledger::torch::flat_sharded
