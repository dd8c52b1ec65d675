#include "sim/frameworks/torch/fsdp2/buffers.h"

namespace gradledger::torch::fully_shard {

const std::vector<BufferFamily>& fsdp2_buffer_families() {
  using enum BufferPurpose;
  static const std::vector<BufferFamily> families{
      {"*", weights, "the model", "a rank's shard of a weight, padded"},
      {"*.unsharded_param", weights, "unshard, until reshard", "a whole weight, gathered from all shards"},
      {"all_gather_output", weights, "unshard", "the shards of a module's weights, rank by rank"},
      {"*.unsharded_param.grad", gradients, "autograd", "a rank's own gradient of a whole weight; sums where backwards are not reduced"},
      {"*.unsharded_param.grad of a forward", gradients, "autograd", "the gradient of one forward as it was computed, before a cast to the dtype of the sum"},
      {"*.unsharded_param.grad of a sum", gradients, "autograd", "the gradients of one or several forwards, before AccumulateGrad"},
      {"*.unsharded_accumulated_grad", accumulators, "a backward that is not reduced", "a rank's own sum, in the dtype of the reduction"},
      {"*.unsharded_zero_grad", gradients, "set_reduce_scatter_unused_params", "zeros that stand for a gradient"},
      {"*.grad redistributed", gradients, "DTensor.redistribute", "a gradient that tensor-parallel ranks have parts of, added up over them"},
      {"reduce_scatter_input", buckets, "foreach_reduce", "the gradients of a module, padded, rank by rank"},
      {"reduce_scatter_output", accumulators, "foreach_reduce", "a rank's shards of the reduced gradients, which param.grad views where nothing is cast"},
      {"_partial_reduce_output", accumulators, "foreach_reduce", "what was reduced between the ranks of a shard, and not between replicas"},
      {"reduce_output_cast", accumulators, "foreach_reduce", "the reduced gradients in the parameters' dtype, which param.grad views"},
      {"*.grad", accumulators, "foreach_reduce, with CPU offload", "a rank's shard of a reduced gradient, on the host"},
      {"*.delta", other, "the optimizer", "what a step adds to weights that are not fp32"},
      {"exp_avg", optimizer_state, "Adam, AdamW", "first moments"},
      {"exp_avg_sq", optimizer_state, "Adam, AdamW", "second moments"},
      {"total_norm_squared", scalars, "clip_grad_norm_", "a sum of squares"},
      {"total_norm", scalars, "clip_grad_norm_", "the norm of all gradients"},
      {"norm", scalars, "clip_grad_norm_", "the norm of one gradient"},
      {"rounded_norms", scalars, "clip_grad_norm_", "norms of gradients of 16 bits, in their dtype"},
      {"norms", scalars, "clip_grad_norm_", "the norms of all gradients"},
      {"found_inf", scalars, "GradScaler", "whether a gradient has an infinity or NaN"},
      {"loop_scalar", scalars, "the loop", "a scalar that it reduces"},
  };
  return families;
}

}  // namespace gradledger::torch::fully_shard
