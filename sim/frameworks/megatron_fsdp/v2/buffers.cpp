#include "sim/frameworks/megatron_fsdp/v2/buffers.h"

namespace gradledger::megatron_fsdp::v2 {

const std::vector<BufferFamily>& v2_buffer_families() {
  using enum BufferPurpose;
  static const std::vector<BufferFamily> families{
      {"*", weights, "the model", "a rank's shard of a weight that computes"},
      {"model_weight", weights, "the first gather", "what a rank has of the weights of a module's parameters, as a gather takes it"},
      {"unsharded_model_weight", weights, "a gather, until the module gives it up", "the weights of a module's parameters, whole"},
      {"*.main_weight", master_weights, "a model that is not fp32", "the same in fp32, which the optimizer steps"},
      {"*.unsharded.grad", gradients, "autograd", "a rank's own gradient, until its module has all of them"},
      {"main_grad", accumulators, "initialisation, and each reduction between shards",
       "a rank's shard of the gradients of a module's parameters: the average, of which param.grad is a view"},
      {"partial_grad", buckets, "a module that has all of its gradients", "them, on their way to a reduction"},
      {"reduced_grad", buckets, "a reduction whose result is added or cast", "the average of one backward"},
      {"*.averaged_grad", buckets, "a step of gradients that shards have not averaged", "what DTensor averages in the optimizer"},
      {"*.casted_grad", master_gradients, "a step, where the dtypes differ", "a copy of param.grad in the dtype of main_weight"},
      {"exp_avg", optimizer_state, "Adam, AdamW", "first moments"},
      {"exp_avg_sq", optimizer_state, "Adam, AdamW", "second moments"},
      {"loop_scalar", scalars, "the loop", "a scalar that it reduces"},
  };
  return families;
}

}  // namespace gradledger::megatron_fsdp::v2
