#include "sim/frameworks/torch/ddp/buffers.h"

namespace gradledger::torch {

const std::vector<BufferFamily>& ddp_buffer_families() {
  using enum BufferPurpose;
  static const std::vector<BufferFamily> families{
      {"*", weights, "the model", "its weights, replicated"},
      {"*.grad", gradients, "autograd, and the reducer for parameters that this rank did not use", "param.grad, where it is no view of a bucket"},
      {"*.grad of a sum", gradients, "autograd", "the gradients of several forwards, before AccumulateGrad"},
      {"*.grad in fp32", other, "the optimizer", "a gradient that a wrapped hook left in 16 bits"},
      {"*.grad redistributed", gradients, "DTensor.redistribute", "a gradient that tensor-parallel ranks have parts of, added up over them"},
      {"*.delta", other, "the optimizer", "what a step adds to weights that are not fp32"},
      {"buckets", buckets, "the reducer, at construction and at the rebuild", "a bucket's gradients, flat"},
      {"bucket_indices", scalars, "the reducer, at the rebuild", "the bucket of each parameter, from rank 0"},
      {"bucket_sizes", scalars, "the reducer, at the rebuild", "the number of parameters of each bucket, from rank 0"},
      {"local_used_map", scalars, "the reducer", "which parameters were used, by how many ranks"},
      {"delay_grad_buffer", accumulators, "delay_all_reduce_named_params", "the gradients of the delayed parameters, fp32"},
      {"error_dict", accumulators, "powerSGD_hook", "what it left out of a bucket last time: error feedback"},
      {"input_tensor_cp", buckets, "powerSGD_hook", "a bucket before it is compressed"},
      {"uncompressed_tensors_memory", buckets, "powerSGD_hook", "the small parameters of a bucket, in one piece"},
      {"p_memory_dict", buckets, "powerSGD_hook", "the left factors of a bucket's matrices; what stands for their products, in the simulator"},
      {"q_memory_dict", buckets, "powerSGD_hook", "the right factors"},
      {"exp_avg", optimizer_state, "Adam, AdamW", "first moments"},
      {"exp_avg_sq", optimizer_state, "Adam, AdamW", "second moments"},
      {"total_norm_squared", scalars, "clip_grad_norm_", "a sum of squares"},
      {"total_norm", scalars, "clip_grad_norm_", "the norm of all gradients"},
      {"norm", scalars, "clip_grad_norm_", "the norm of one gradient"},
      {"rounded_norms", scalars, "clip_grad_norm_", "norms of gradients of 16 bits, in their dtype"},
      {"found_inf", scalars, "GradScaler", "whether a gradient has an infinity or NaN"},
      {"loop_scalar", scalars, "the loop", "a scalar that it reduces"},
  };
  return families;
}

}  // namespace gradledger::torch
