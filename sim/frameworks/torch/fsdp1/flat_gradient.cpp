// Gradients of flat parameters: whole ones by autograd, shards of reduced ones, and the gradients of original parameters, which view either.
#include <algorithm>
#include <utility>

#include "sim/frameworks/torch/fsdp1/errors.h"
#include "sim/frameworks/torch/fsdp1/flat_param.h"

namespace gradledger::torch::flat_sharded {

void FlatParamHandle::set_grad(const Pass& pass, Tensor to, bool own) {
  pass.s.tensors.share(pass.w, grad, to);
  grad_is_own = own;
}

// The tensor's data is replaced: on a CPU without shards it may be the one that _cpu_grad names too.
void FlatParamHandle::replace_grad(const Pass& pass, Tensor by) {
  const bool offloaded = cpu_grad.defined() && cpu_grad.slice.buffer == grad.slice.buffer;
  pass.s.tensors.give(pass.w, grad, by);
  if (offloaded) pass.s.tensors.share(pass.w, cpu_grad, grad);
}

// In place where there is a gradient, whatever its size; `computed` is let go of.
void FlatParamHandle::accumulate_grad(const Pass& pass, Tensor computed) {
  if (!grad.defined()) {
    pass.s.tensors.give(pass.w, grad, computed);
    grad_is_own = true;
    return;
  }
  const bool fits = grad.numel() == computed.numel();
  const std::uint64_t numel = computed.numel();
  if (fits) pass.w.accumulate(grad.slice, computed.slice);
  pass.s.tensors.drop(pass.w, computed);
  if (!fits) throw cannot_be_added(grad.numel(), numel);
}

// ---- before and behind a backward -------------------------------------------------------------------------------------------------

// A shard is put aside, so that autograd begins a whole gradient. What is on the host is overwritten by the reduction.
void FlatParamHandle::prepare_gradient_for_backward(const Pass& pass) {
  const bool elsewhere = grad.defined() && grad_on_cpu(pass) != data_on_cpu(pass.s);
  if (!grad.defined() || (grad.numel() == layout_.unpadded_numel && !elsewhere)) return;
  if (data_on_cpu(pass.s)) throw not_on_compute_device();
  if (grad.numel() != layout_.shard_numel)
    throw FrameworkError{"AssertionError", "Expects `.grad` to be the unsharded gradient in `no_sync()` with size torch.Size([" +
                                               std::to_string(std::uint64_t{layout_.shard_numel} * pass.s.modules.shards) + "]) but got size torch.Size([" +
                                               std::to_string(grad.numel()) + "])"};
  if (!grad_on_cpu(pass)) {
    pass.s.tensors.share(pass.w, saved_grad_shard, grad);
    if (keep_low_precision_grads_ && pass.w.declaration(grad.slice.buffer).dtype != orig_dtype_) {
      const Tensor cast = pass.s.tensors.allocate(pass.w, label(pass.s, "flat_param.grad cast"), orig_dtype_, grad.numel());
      pass.w.copy(cast.slice, grad.slice);
      pass.s.tensors.give(pass.w, saved_grad_shard, cast);
    }
  } else if (keep_low_precision_grads_ && pass.w.declaration(cpu_grad.slice.buffer).dtype != orig_dtype_) {
    OnStream on(pass.w, Stream::host);
    const Tensor cast = pass.s.tensors.allocate(pass.w, label(pass.s, "flat_param.grad cast"), orig_dtype_, cpu_grad.numel(), MemorySpace::host);
    pass.w.copy(cast.slice, cpu_grad.slice);
    pass.s.tensors.give(pass.w, cpu_grad, cast);
  }
  set_grad(pass, {}, false);
}

void FlatParamHandle::prepare_gradient_for_optim(const Pass& pass) {
  if (cpu_grad.defined()) {
    check_sharded(data_numel());
    if (const Dtype given = pass.w.declaration(cpu_grad.slice.buffer).dtype; given != data_dtype()) throw cannot_be_assigned(given, data_dtype());
    set_grad(pass, cpu_grad, false);
    cast_grad_to_param_dtype_if_needed(pass);
  } else if (saved_grad_shard.defined()) {
    check_sharded(data_numel());
    if (post_backward_called) {
      set_grad(pass, saved_grad_shard, false);
      cast_grad_to_param_dtype_if_needed(pass);
    }
  } else if (uses_sharded_strategy() && post_backward_called) {
    throw no_saved_grad_shard();
  }
  pass.s.tensors.clear(pass.w, saved_grad_shard);
}

// Both names are of one tensor, whose data is replaced.
void FlatParamHandle::cast_grad_to_param_dtype_if_needed(const Pass& pass) {
  if (!keep_low_precision_grads_) return;
  if (!grad.defined()) throw no_gradient();
  if (pass.w.declaration(grad.slice.buffer).dtype == param_dtype_) return;
  OnStream on(pass.w, grad_on_cpu(pass) ? Stream::host : pass.w.stream());
  const Tensor cast = pass.s.tensors.allocate(pass.w, label(pass.s, "flat_param.grad cast"), param_dtype_, grad.numel(), pass.w.declaration(grad.slice.buffer).space);
  pass.w.copy(cast.slice, grad.slice);
  if (cpu_grad.defined()) pass.s.tensors.share(pass.w, cpu_grad, cast);
  else pass.s.tensors.share(pass.w, saved_grad_shard, cast);
  pass.s.tensors.give(pass.w, grad, cast);
  if (use_orig_params_) use_sharded_grad_views(pass);
}

// Where all gradients of the original parameters were set to None, the flat one is let go of.
void FlatParamHandle::reset_flat_param_grad_info_if_needed(const Pass& pass) {
  if (use_orig_params_ && std::none_of(origs.begin(), origs.end(), [](const OrigParam& o) { return o.grad.defined(); })) set_grad(pass, {}, false);
}

void FlatParamHandle::reset_is_grad_none() {
  for (OrigParam& orig : origs) orig.is_grad_none = false;
}

bool FlatParamHandle::shows_gradients() const {
  return !use_orig_params_ || std::any_of(origs.begin(), origs.end(), [](const OrigParam& o) { return o.grad.defined(); });
}

// ---- gradients of original parameters ---------------------------------------------------------------------------------------------

// What took the parameter's place is a view, and its base has other memory by now.
void FlatParamHandle::view_grad(const Pass& pass, OrigParam& orig, Tensor of, std::uint64_t offset, std::uint64_t numel) {
  if (orig.replaced && pass.s.behaviour.replaced_parameter == ReplacedParameter::raises) throw changed_in_place();
  pass.s.tensors.share(pass.w, orig.grad, of.part(offset, numel));
}

void FlatParamHandle::drop_orig_grads(const Pass& pass) {
  for (OrigParam& orig : origs) pass.s.tensors.clear(pass.w, orig.grad);
}

void FlatParamHandle::use_unsharded_grad_views(const Pass& pass) {
  if (!grad.defined()) return drop_orig_grads(pass);
  if (grad.numel() != layout_.unpadded_numel) throw not_unsharded(layout_.unpadded_numel, grad.numel());
  for (std::size_t i = 0; i < origs.size(); ++i) view_grad(pass, origs[i], grad, layout_.parts[i].offset, layout_.parts[i].numel);
}

void FlatParamHandle::use_sharded_grad_views(const Pass& pass) {
  check_sharded(data_numel());
  const Tensor of = sharded_grad();
  if (!of.defined()) return drop_orig_grads(pass);
  check_sharded(of.numel());
  for (std::size_t i = 0; i < origs.size(); ++i) {
    const Layout::Piece piece = layout_.piece(layout_.parts[i], shard_index_);
    if (piece.numel == 0 || origs[i].is_grad_none) pass.s.tensors.clear(pass.w, origs[i].grad);
    else view_grad(pass, origs[i], of, piece.offset, piece.numel);
  }
}

// ---- what a loop did to original parameters ---------------------------------------------------------------------------------------

// Where a module has views behind its backward, as a module that is called and not used does without shards, they are taken for new parameters: the
// optimizer has the old ones from then on. A gradient that was set to None is zeros in the flat one. One that views other memory is copied in.
void FlatParamHandle::writeback_orig_params(const Pass& pass) {
  if (uses_sharded_strategy() && data_numel() != layout_.shard_numel && !skipped_sharded_views) return;
  if (skipped_sharded_views) return;
  for (OrigParam& orig : origs) {
    if (exposes_params) break;
    if (!std::exchange(orig.replaced, true)) orig.grad_of_replaced = std::exchange(orig.grad, {});
    pass.s.tensors.clear(pass.w, orig.grad);
  }
  Tensor flat_param_grad;
  pass.s.tensors.share(pass.w, flat_param_grad, uses_sharded_strategy() || !offload_params_ ? grad : cpu_grad);
  for (std::size_t i = 0; i < origs.size(); ++i) {
    if (layout_.piece(layout_.parts[i], shard_index_).numel > 0) writeback_grad(pass, i, flat_param_grad);
  }
  pass.s.tensors.clear(pass.w, flat_param_grad);
}

void FlatParamHandle::writeback_grad(const Pass& pass, std::size_t part, Tensor& flat_param_grad) {
  OrigParam& orig = origs[part];
  const Layout::Piece piece = layout_.piece(layout_.parts[part], shard_index_);
  if (!orig.grad.defined()) {
    if (!grad.defined()) return;
    // The place is that of a shard, even where the gradient is whole.
    pass.w.fill(grad.slice.part(piece.offset, std::min(piece.numel, grad.numel() - piece.offset)), 0.0);
    orig.is_grad_none = true;
    return;
  }
  if (!uses_sharded_strategy() && offload_params_) return;
  if (flat_param_grad.defined() && orig.grad.slice.buffer == flat_param_grad.slice.buffer) return;
  // zeros_like(flat_param): where weights are on the host before they are gathered, this is too.
  const bool on_cpu = flat_param_grad.defined() ? pass.w.declaration(flat_param_grad.slice.buffer).space == MemorySpace::host : data_on_cpu(pass.s);
  OnStream on(pass.w, on_cpu ? Stream::host : pass.w.stream());
  if (!flat_param_grad.defined()) {
    flat_param_grad = pass.s.tensors.allocate(pass.w, label(pass.s, "flat_param.grad written back"), data_dtype(), data_numel(), on_cpu ? MemorySpace::host : MemorySpace::device);
    pass.w.fill(flat_param_grad.slice, 0.0);
  }
  const std::uint64_t found = orig.grad.numel(), flat = flat_param_grad.numel();
  if (found == piece.numel) pass.w.copy(flat_param_grad.slice.part(piece.offset, piece.numel), orig.grad.slice);
  if (found == piece.numel && flat == data_numel()) return set_grad(pass, flat_param_grad, !uses_sharded_strategy() && grad_is_own);
  pass.s.tensors.clear(pass.w, flat_param_grad);
  if (found != piece.numel) throw gradient_shape_changes(piece.numel, found);
  throw cannot_be_assigned(flat, data_numel());
}

}  // namespace gradledger::torch::flat_sharded
