// What happens to a whole gradient once autograd has made it: _runtime_utils.py, _reduce_grad and what it calls.
#include <cmath>

#include "sim/frameworks/torch/fsdp1/fully_sharded.h"

namespace gradledger::torch::flat_sharded {
namespace {

struct Factors {
  double before = 1, after = 1;
};

// About the root of the number of ranks is divided by before, so that sums do not overflow; the rest after.
Factors gradient_divide_factors(std::uint32_t ranks) {
  Factors out;
  while (std::fmod(ranks, out.before) == 0 && ranks / out.before > out.before) out.before *= 2;
  out.after = ranks / out.before;
  return out;
}

void divide_if_needed(ProgramWriter& w, Slice slice, double divisor) {
  if (divisor > 1) w.divide(slice, divisor);
}

Tensor padded(const FlatParamHandle& h, Tensor unsharded_grad, const Pass& pass) {
  const std::uint64_t numel = std::uint64_t{h.layout().shard_numel} * pass.s.modules.shards;
  if (numel == unsharded_grad.numel()) return unsharded_grad;
  const Tensor out = pass.s.tensors.allocate(pass.w, h.label(pass.s, "padded_unsharded_grad"), pass.w.declaration(unsharded_grad.slice.buffer).dtype, numel);
  pass.w.copy(out.slice.part(0, unsharded_grad.numel()), unsharded_grad.slice);
  pass.w.fill(out.slice.part(unsharded_grad.numel(), out.numel() - unsharded_grad.numel()), 0.0);
  pass.s.tensors.drop(pass.w, unsharded_grad);
  return out;
}

// _cast_grad_to_param_dtype: the tensor's data is replaced.
bool is_cast(const FlatParamHandle& h, Tensor grad, const Pass& pass) { return pass.w.declaration(grad.slice.buffer).dtype != h.orig_dtype(); }

Tensor in_param_dtype(const FlatParamHandle& h, Tensor grad, const Pass& pass) {
  const Tensor out = pass.s.tensors.allocate(pass.w, h.label(pass.s, "flat_param.grad cast"), h.orig_dtype(), grad.numel());
  pass.w.copy(out.slice, grad.slice);
  return out;
}

Tensor cast_to_param_dtype(const FlatParamHandle& h, Tensor grad, const Pass& pass) {
  if (!is_cast(h, grad, pass)) return grad;
  const Tensor out = in_param_dtype(h, grad, pass);
  pass.s.tensors.drop(pass.w, grad);
  return out;
}

// _accumulate_sharded_grad: reductions may come in any order.
void accumulate_sharded_grad(FlatParamHandle& h, Tensor sharded_grad, const Pass& pass) {
  const Tensor cast = cast_to_param_dtype(h, sharded_grad, pass);
  if (!h.saved_grad_shard.defined()) {
    h.saved_grad_shard = cast;
    return;
  }
  pass.w.accumulate(h.saved_grad_shard.slice, cast.slice);
  pass.s.tensors.drop(pass.w, cast);
}

// _post_reduce_grad_callback: what the host had is overwritten. On a CPU the gradient may be the host's own already.
void post_reduce_grad_callback(FlatParamHandle& h, Slice grad, const Pass& pass) {
  if (pass.s.config->offload && h.cpu_grad.slice.buffer != grad.buffer) {
    if (pass.s.config->over_the_bus()) pass.w.copy_over_the_bus(h.cpu_grad.slice, grad, h.uses_sharded_strategy());
    else pass.w.copy(h.cpu_grad.slice, grad);
  }
  if (!h.use_orig_params()) return;
  h.reset_is_grad_none();
  h.use_sharded_grad_views(pass);
}

}  // namespace

// On the stream behind the backward. The gradient is let go of at once, so that a second backward begins its own.
void reduce_grad(std::uint32_t module, const Pass& pass) {
  FlatParamHandle& h = pass.s.handles[module];
  const Factors factors = gradient_divide_factors(pass.s.modules.shard.size() * pass.s.modules.replicate.size());
  Tensor unsharded_grad;
  pass.s.tensors.share(pass.w, unsharded_grad, h.grad);
  h.set_grad(pass, {}, false);
  const Tensor input = padded(h, unsharded_grad, pass);
  const Tensor output = pass.s.tensors.allocate(pass.w, h.label(pass.s, "new_sharded_grad"), pass.w.declaration(input.slice.buffer).dtype, h.layout().shard_numel);
  divide_if_needed(pass.w, input.slice, factors.before);
  pass.w.collective({.kind = CollectiveKind::reduce_scatter, .group = pass.s.modules.shard.id, .input = input.slice, .output = output.slice});
  pass.s.tensors.drop(pass.w, input);
  const bool hybrid = pass.s.strategy == Strategy::hybrid_shard || pass.s.strategy == Strategy::hybrid_shard_zero2;
  if (hybrid) wait_stream(pass.w, Stream::all_reduce, Stream::communication);
  OnStream on(pass.w, hybrid ? Stream::all_reduce : pass.w.stream());
  if (hybrid) pass.w.collective({.group = pass.s.modules.replicate.id, .input = output.slice, .output = output.slice});
  divide_if_needed(pass.w, output.slice, factors.after);
  accumulate_sharded_grad(h, output, pass);
  post_reduce_grad_callback(h, h.saved_grad_shard.slice, pass);
}

// In place. What was there of backwards before is in it: an average that is averaged again. Of a hybrid strategy with whole shards it is divided for the
// replicas too, between which nothing is reduced.
void reduce_grad_no_shard(std::uint32_t module, const Pass& pass) {
  FlatParamHandle& h = pass.s.handles[module];
  const Factors factors = gradient_divide_factors(pass.s.modules.shard.size() * pass.s.modules.replicate.size());
  divide_if_needed(pass.w, h.grad.slice, factors.before);
  pass.w.collective({.group = pass.s.modules.shard.id, .input = h.grad.slice, .output = h.grad.slice});
  divide_if_needed(pass.w, h.grad.slice, factors.after);
  h.grad_is_own = false;
  if (!h.keeps_low_precision_grads() && is_cast(h, h.grad, pass)) h.replace_grad(pass, in_param_dtype(h, h.grad, pass));
  post_reduce_grad_callback(h, h.grad.slice, pass);
}

}  // namespace gradledger::torch::flat_sharded
