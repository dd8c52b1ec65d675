#include "sim/frameworks/torch/fsdp1/buffers.h"

namespace gradledger::torch::flat_sharded {

const std::vector<BufferFamily>& fsdp1_buffer_families() {
  using enum BufferPurpose;
  static const std::vector<BufferFamily> families{
      {"_local_shard", weights, "the model", "a rank's shard of a flat parameter, padded"},
      {"flat_param on the device", weights, "pre_unshard, with CPU offload", "the same, where modules compute"},
      {"_mp_shard", weights, "pre_unshard, with param_dtype", "the same, in the dtype in which modules compute"},
      {"_full_param_padded", weights, "unshard", "a whole flat parameter, gathered from all shards"},
      {"flat_param.grad", gradients, "autograd", "a rank's own gradient of a whole flat parameter; sums where backwards are not reduced, averages with NO_SHARD"},
      {"flat_param.grad of a forward", gradients, "autograd", "the gradient of one forward, before AccumulateGrad"},
      {"flat_param.grad in reduce_dtype", gradients, "_post_backward_hook", "the same, cast for the reduction"},
      {"flat_param.grad cast", accumulators, "a cast of gradients", "gradients in the dtype of the parameters, or in theirs back in that of the computation"},
      {"flat_param.grad written back", accumulators, "_writeback_orig_params", "gradients of original parameters that were no views of a flat one"},
      {"padded_unsharded_grad", buckets, "_reduce_grad", "a whole gradient, padded to equal shards"},
      {"new_sharded_grad", accumulators, "_reduce_grad", "a rank's shard of the reduced gradient, which the flat parameter's gradient becomes"},
      {"_cpu_grad", accumulators, "the model, with CPU offload", "a rank's shard of the reduced gradient, on the host"},
      {"*.delta", other, "the optimizer", "what a step adds to weights that are not fp32, or a gradient in fp32"},
      {"exp_avg", optimizer_state, "Adam, AdamW", "first moments"},
      {"exp_avg_sq", optimizer_state, "Adam, AdamW", "second moments"},
      {"total_norm_squared", scalars, "clip_grad_norm_", "a sum of squares"},
      {"total_norm", scalars, "clip_grad_norm_", "the norm of all gradients"},
      {"norm", scalars, "clip_grad_norm_", "the norm of one gradient"},
      {"rounded_norms", scalars, "clip_grad_norm_", "norms of gradients of 16 bits, in their dtype"},
      {"found_inf", scalars, "the GradScaler", "whether a gradient has an infinity or NaN"},
      {"loop_scalar", scalars, "the loop", "a scalar that it reduces"},
  };
  return families;
}

}  // namespace gradledger::torch::flat_sharded
