// Flat parameters: gathered before a forward or backward needs them, given up behind it.
#include "sim/frameworks/torch/fsdp1/flat_param.h"

#include <utility>

#include "sim/engine/base_optimizer.h"
#include "sim/frameworks/torch/fsdp1/errors.h"

namespace gradledger::torch::flat_sharded {

void wait_stream(ProgramWriter& w, Stream waits, Stream waited_for) {
  std::uint32_t reached = no_index;
  {
    OnStream on(w, waited_for);
    reached = w.record();
  }
  OnStream on(w, waits);
  w.wait(reached);
}

// Without a dtype of their own gradients are reduced in the one that parameters compute in.
FlatParamHandle::FlatParamHandle(std::uint32_t module, const Shared& s)
    : module_(module),
      layout_(s.modules.layouts[module]),
      strategy_(s.strategy),
      use_orig_params_(s.config->use_orig_params),
      offload_params_(s.config->offload),
      keep_low_precision_grads_(s.config->mixed_precision.keep_low_precision_grads),
      shard_index_(s.shard_index()) {
  if (empty()) return;
  const MixedPrecision& given = s.config->mixed_precision;
  orig_dtype_ = s.context.scenario->dtype_of(layout_.parts.front().parameter);
  param_dtype_ = given.param_dtype.value_or(orig_dtype_);
  reduce_dtype_ = given.reduce_dtype.value_or(param_dtype_);
  if (use_orig_params_) origs.resize(layout_.parts.size());
}

std::string FlatParamHandle::label(const Shared& s, const char* buffer) const {
  return std::string(buffer) + "[" + s.context.scenario->parameters[layout_.parts.front().parameter].name + "]";
}

void FlatParamHandle::initialise(const Pass& pass) {
  const MemorySpace space = pass.s.config->over_the_bus() ? MemorySpace::host : MemorySpace::device;
  local_shard = pass.s.tensors.allocate(pass.w, label(pass.s, "_local_shard"), orig_dtype_, layout_.shard_numel, space);
  pass.w.fill(local_shard.slice, 0.0);
  for (const Part& part : layout_.parts)
    if (const Layout::Piece piece = layout_.piece(part, shard_index_); piece.numel > 0)
      initialise_weights(pass.w, local_shard.slice.part(piece.offset, piece.numel), part.parameter, piece.parameter_offset);
}

void FlatParamHandle::init_flat_param_attributes(const Pass& pass) {
  if (!offload_params_) return;
  const MemorySpace space = pass.s.config->over_the_bus() ? MemorySpace::host : MemorySpace::device;
  OnStream on(pass.w, space == MemorySpace::host ? Stream::host : pass.w.stream());
  cpu_grad = pass.s.tensors.allocate(pass.w, label(pass.s, "_cpu_grad"), orig_dtype_, layout_.shard_numel, space);
  pass.w.fill(cpu_grad.slice, 0.0);
}

Tensor FlatParamHandle::data_tensor() const {
  switch (data) {
    case Data::local_shard: return local_shard;
    case Data::shard_on_device: return shard_on_device;
    case Data::mp_shard: return mp_shard;
    case Data::unsharded: return full_param.part(0, layout_.unpadded_numel);
  }
  return local_shard;
}

// A tensor whose dtype changes gets another AccumulateGrad.
void FlatParamHandle::set_data(Data to) {
  const Dtype before = data_dtype();
  data = to;
  if (data_dtype() != before) ++accumulator;
}

void FlatParamHandle::check_sharded(std::uint64_t numel) const {
  if (numel != layout_.shard_numel) throw not_sharded(layout_.shard_numel, numel);
}

// ---- gathering --------------------------------------------------------------------------------------------------------------------

// On the stream of what comes before gathering. Whether there was something to do.
bool FlatParamHandle::pre_unshard(const Pass& pass) {
  if (use_orig_params_) writeback_orig_params(pass);
  if (uses_sharded_strategy() && !offload_params_ && !needs_unshard()) return false;
  if (param_dtype_ != orig_dtype_) {
    use_low_precision_shard(pass);
    return true;
  }
  if (!data_on_cpu(pass.s)) return false;
  pass.s.tensors.give(pass.w, shard_on_device, pass.s.tensors.allocate(pass.w, label(pass.s, "flat_param on the device"), orig_dtype_, layout_.shard_numel));
  pass.w.copy_over_the_bus(shard_on_device.slice, local_shard.slice, true);
  set_data(Data::shard_on_device);
  return true;
}

void FlatParamHandle::use_low_precision_shard(const Pass& pass) {
  pass.s.tensors.give(pass.w, mp_shard, pass.s.tensors.allocate(pass.w, label(pass.s, "_mp_shard"), param_dtype_, layout_.shard_numel));
  if (pass.s.config->over_the_bus()) {
    const Tensor whole = pass.s.tensors.allocate(pass.w, label(pass.s, "flat_param on the device"), orig_dtype_, layout_.shard_numel);
    pass.w.copy_over_the_bus(whole.slice, local_shard.slice, true);
    pass.w.copy(mp_shard.slice, whole.slice);
    pass.s.tensors.drop(pass.w, whole);
  } else {
    pass.w.copy(mp_shard.slice, local_shard.slice);
  }
  set_data(Data::mp_shard);
}

void FlatParamHandle::unshard(const Pass& pass) {
  if (needs_unshard()) all_gather_flat_param(pass);
  use_unsharded_flat_param(pass.s);
}

void FlatParamHandle::all_gather_flat_param(const Pass& pass) {
  const Tensor shard = data_tensor();
  check_sharded(shard.numel());
  full_param = pass.s.tensors.allocate(pass.w, label(pass.s, "_full_param_padded"), param_dtype_, std::uint64_t{layout_.shard_numel} * pass.s.modules.shards);
  pass.w.collective({.kind = CollectiveKind::all_gather, .purpose = Purpose::parameter, .group = pass.s.modules.shard.id, .input = shard.slice, .output = full_param.slice});
}

void FlatParamHandle::use_unsharded_flat_param(const Shared& s) {
  if (uses_sharded_strategy()) set_data(Data::unsharded);
  const bool in_forward = training_state == HandleTrainingState::forward, in_pre_backward = training_state == HandleTrainingState::backward_pre;
  if (use_orig_params_) {
    if (skipped_sharded_views && in_pre_backward) return;
    use_unsharded_views(s, !in_forward && !in_pre_backward);
  } else if (in_forward) {
    use_unsharded_views(s, false);
  }
}

// Behind gathering nobody reads the shard in the dtype of the computation; without shards it is what modules compute with.
void FlatParamHandle::post_unshard(const Pass& pass) {
  if (uses_sharded_strategy()) {
    pass.s.tensors.clear(pass.w, mp_shard);
    pass.s.tensors.clear(pass.w, shard_on_device);
  }
}

void FlatParamHandle::reshard(const Pass& pass, bool free_unsharded) {
  use_sharded_flat_param(pass);
  if (free_unsharded) pass.s.tensors.clear(pass.w, full_param);
}

void FlatParamHandle::post_reshard(const Pass& pass) {
  if (uses_sharded_strategy()) return;
  pass.s.tensors.clear(pass.w, mp_shard);
  pass.s.tensors.clear(pass.w, shard_on_device);
}

// Strategies that keep weights gathered behind a forward leave original parameters and their gradients as the forward had them.
void FlatParamHandle::use_sharded_flat_param(const Pass& pass) {
  const bool in_forward = training_state == HandleTrainingState::forward;
  const bool keeps = strategy_ == Strategy::shard_grad_op || strategy_ == Strategy::hybrid_shard_zero2;
  set_data(Data::local_shard);
  if (!use_orig_params_) return;
  if (in_forward && keeps) skipped_sharded_views = true;
  else use_sharded_views(pass.s);
  if (!in_forward || skipped_sharded_views) return;
  if (grad.defined() && uses_sharded_strategy() && grad.numel() == layout_.unpadded_numel) use_unsharded_grad_views(pass);
  else use_sharded_grad_views(pass);
}

// ---- views ------------------------------------------------------------------------------------------------------------------------

void FlatParamHandle::use_unsharded_views(const Shared& s, bool as_params) {
  if (data_numel() != layout_.unpadded_numel) throw not_unsharded(layout_.unpadded_numel, data_numel());
  exposes_params = as_params;
  if (as_params || training_state != HandleTrainingState::forward) return;
  views_accumulator = accumulator;
  views_forward = s.forward;
  views_changed_in_place = false;
}

void FlatParamHandle::use_sharded_views(const Shared& s) {
  skipped_sharded_views = false;
  if (!uses_sharded_strategy()) return use_unsharded_views(s, true);
  check_sharded(data_numel());
  exposes_params = true;
}

}  // namespace gradledger::torch::flat_sharded
