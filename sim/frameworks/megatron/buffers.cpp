#include "sim/frameworks/megatron/buffers.h"

namespace gradledger::megatron {

const std::vector<BufferFamily>& megatron_buffer_families() {
  using enum BufferPurpose;
  static const std::vector<BufferFamily> families{
      {"*", weights, "the model", "its weights, where no buffer has them"},
      {"param_data", weights, "_ParamAndGradBuffer, with the distributed optimizer", "the weights of all parameters of a dtype, whole on every rank"},
      {"grad_data", accumulators, "_ParamAndGradBuffer", "main_grad of all parameters of a dtype, whole on every rank"},
      {"*.main_grad", accumulators, "_ParamAndGradBuffer", "the part of grad_data that the rank's optimizer reads"},
      {"*.grad", gradients, "autograd", "param.grad, until the hook has added it to main_grad"},
      {"main_param", master_weights, "the optimizer, where parameters are no fp32", "fp32 weights, of the rank's part with the distributed optimizer"},
      {"main_param.grad", master_gradients, "the optimizer's step", "what it applies: main_grad itself where that is fp32"},
      {"main_param.grad of experts", master_gradients, "the step of the experts' optimizer", "likewise"},
      {"coalesced_sum", buckets, "finalize_model_grads", "sequence-parallel gradients, flat"},
      {"coalesced_avg", buckets, "finalize_model_grads", "gradients that are averaged over tensor-parallel ranks, flat"},
      {"num_tokens", scalars, "finalize_model_grads", "the tokens of the window"},
      {"exp_avg", optimizer_state, "Adam, AdamW", "first moments"},
      {"exp_avg_sq", optimizer_state, "Adam, AdamW", "second moments"},
      {"found_inf", scalars, "the grad scaler", "whether a gradient has an infinity or NaN"},
      {"grad_norms", scalars, "get_grad_norm_fp32", "the norm of each gradient"},
      {"grad_norm", scalars, "get_grad_norm_fp32", "a norm"},
      {"grad_norm_squared", scalars, "get_grad_norm_fp32", "a sum of squares"},
      {"total_norm", scalars, "get_grad_norm_fp32", "the squared norm, over ranks"},
      {"local_grad_norm", scalars, "check_grads", "the norm of a bucket before it is reduced"},
      {"has_grad_norm_group", scalars, "has_grad_norm_group", "whether some parameter has a norm of its own"},
      {"num_zeros", scalars, "count_zeros_fp32", "the zeros of all gradients"},
  };
  return families;
}

}  // namespace gradledger::megatron
