#include "sim/frameworks/megatron_fsdp/buffers.h"

namespace gradledger::megatron_fsdp {

const std::vector<BufferFamily>& megatron_fsdp_buffer_families() {
  using enum BufferPurpose;
  static const std::vector<BufferFamily> families{
      {"*", weights, "the model", "what a rank steps of a weight that computes"},
      {"*.main_weight", master_weights, "main_params_dtype", "the same in fp32, which the optimizer steps"},
      {"*.grad", gradients, "autograd", "a rank's own gradient, until the hook has put it away"},
      {"main_grad_buffer", accumulators, "initialisation",
       "the gradients of a parameter group: whole, or a rank's shard; with outer sharding the part that is reduced over all ranks"},
      {"model_weight_buffer", weights, "the first gather", "what a rank has of the weights of a parameter group, as a gather takes it"},
      {"weights bucket", weights, "a gather, until its module gives it up", "the weights of a parameter group, whole"},
      {"hfsdp_helper_gbuf", accumulators, "outer_dp_sharding_strategy", "what a shard of ranks has summed, of which main_grad_buffer is a view"},
      {"bucket", buckets, "a backward, where gradients are sharded or have another dtype on the wire", "a whole parameter group on its way to a reduction"},
      {"outer bucket", buckets, "the reduction outside of a shard, where the wire has a dtype of its own", "what a shard has summed, cast"},
      {"grad_shard", buckets, "a reduction, up to 0.3", "what a reduce-scatter gives, before it is added"},
      {"*.main_grad", master_gradients, "finish_grad_sync, where the dtypes differ", "param.grad of the optimizer: a copy in the dtype of the weights that it steps"},
      {"*.delta", other, "the optimizer", "what a step adds to weights that are not fp32"},
      {"exp_avg", optimizer_state, "Adam, AdamW", "first moments"},
      {"exp_avg_sq", optimizer_state, "Adam, AdamW", "second moments"},
      {"loop_scalar", scalars, "the loop", "a scalar that it reduces"},
  };
  return families;
}

}  // namespace gradledger::megatron_fsdp
