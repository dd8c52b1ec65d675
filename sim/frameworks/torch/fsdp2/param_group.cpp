// Parameters: gathered before a forward or backward needs them, given up behind it.
#include "sim/frameworks/torch/fsdp2/param_group.h"

#include <utility>

#include "sim/frameworks/torch/fsdp2/errors.h"

namespace gradledger::torch::fully_shard {

void wait_stream(ProgramWriter& w, Stream waits, Stream waited_for) {
  std::uint32_t reached = no_index;
  {
    OnStream on(w, waited_for);
    reached = w.record();
  }
  OnStream on(w, waits);
  w.wait(reached);
}

void add_in_place(const Pass& pass, Slice sum, Slice gradient, const std::string& buffer) {
  if (gradient.numel == 0) return;
  const auto is_fp64 = [&](Slice slice) { return pass.w.declaration(slice.buffer).dtype == Dtype::float64; };
  if (!is_fp64(sum) || is_fp64(gradient)) return pass.w.accumulate(sum, gradient);
  const Tensor cast = pass.s.tensors.allocate(pass.w, buffer, Dtype::float64, gradient.numel);  // fp64 totals take fp64 terms
  pass.w.copy(cast.slice, gradient);
  pass.w.accumulate(sum, cast.slice);
  pass.s.tensors.drop(pass.w, cast);
}

ParamGroup::ParamGroup(std::uint32_t module, std::vector<std::uint32_t> parameters, bool reshards, const Fsdp2Config& config)
    : reshard_after_forward(reshards),
      reduce_scatter_unused_params(config.reduce_scatter_unused_params),
      force_sum_reduction_for_comms(config.force_sum_reduction_for_comms),
      gradient_divide_factor(config.gradient_divide_factor),
      module_(module),
      parameters_(std::move(parameters)) {}

std::string ParamGroup::label(const Shared& s, const char* buffer) const { return std::string(buffer) + "[" + s.context.scenario->parameters[parameters_.front()].name + "]"; }

// ---- gathering --------------------------------------------------------------------------------------------------------------------

void ParamGroup::unshard(const Pass& pass) {
  if (all_gather_pending_ || unsharded_) return;
  all_gather_pending_ = true;
  if (pass.s.modules.shard.size() > 1) foreach_all_gather(pass);
}

// Copies in and gathers on streams of their own, but for a call of the loop's, which has them on its own stream.
void ParamGroup::foreach_all_gather(const Pass& pass) {
  ProgramWriter& w = pass.w;
  const bool implicit = training_state == TrainingState::forward || training_state == TrainingState::pre_backward;
  const Stream copies = implicit ? Stream::copy : w.stream(), gathers = implicit ? Stream::all_gather : w.stream();
  const auto [dtype, numel, sent] = gathered(pass.s);
  Slice mine;
  all_gather_home_ = copies;
  {
    OnStream on(w, copies);
    for (const Tensor& free : implicit ? std::exchange(pass.s.comm.let_go, {}) : std::vector<Tensor>{}) pass.s.tensors.drop(w, free);
    all_gather_result_.tensor = pass.s.tensors.allocate_again(w, gathered_before_, dtype, numel * pass.s.modules.shard.size(), [&] { return label(pass.s, "all_gather_output"); });
    mine = all_gather_result_.tensor.slice.part(pass.s.chunk() * numel, numel);
    std::uint64_t at = 0;
    for (const std::uint32_t p : parameters_) {
      all_gather_input(pass, p, mine.part(at, pass.s.modules.cuts[p].padded_numel()));
      at += pass.s.modules.cuts[p].padded_numel();
    }
  }
  if (implicit) wait_stream(w, gathers, copies);
  OnStream on(w, gathers);
  w.collective({.kind = CollectiveKind::all_gather,
                .purpose = Purpose::parameter,
                .group = pass.s.modules.shard.id,
                .compressed_numel = sent == numel ? 0 : sent,
                .input = mine,
                .output = all_gather_result_.tensor.slice});
  all_gather_result_.event = w.record();
}

// Parameters that compute in several dtypes are gathered as bytes. Here they are fp32, which holds them all, and counted by their bytes.
ParamGroup::Gathered ParamGroup::gathered(const Shared& s) const {
  Gathered out{s.params[parameters_.front()].computed(), 0, 0};
  std::uint64_t bytes = 0;
  for (const std::uint32_t p : parameters_) {
    const std::uint64_t numel = s.modules.cuts[p].padded_numel();
    out.numel += numel;
    bytes += numel * size_of(s.params[p].computed());
    if (s.params[p].computed() != out.dtype) out.dtype = Dtype::float32;
  }
  out.sent = (bytes + size_of(out.dtype) - 1) / size_of(out.dtype);
  return out;
}

void ParamGroup::all_gather_input(const Pass& pass, std::uint32_t parameter, Slice target) {
  if (target.numel == 0) return;
  const Slice sharded = pass.s.params[parameter].sharded.slice;
  if (pass.s.config->offload) pass.w.copy_over_the_bus(target, sharded, true);
  else pass.w.copy(target, sharded);
}

void ParamGroup::wait_for_unshard(const Pass& pass) {
  if (!all_gather_pending_) return;
  Communication& comm = pass.s.comm;
  const bool several = pass.s.modules.shard.size() > 1;
  if (training_state == TrainingState::forward && comm.all_gather_state) {
    wait_all_gather_streams(pass, comm.all_gather_state->event);
    OnStream on(pass.w, Stream::copy);
    pass.s.tensors.drop(pass.w, std::exchange(comm.all_gather_state, std::nullopt)->tensor);
  }
  copy_out(pass);
  unsharded_ = true;
  const std::uint32_t copied_out = pass.w.record();
  Kept result = std::exchange(all_gather_result_, {});
  all_gather_pending_ = false;
  if (several && training_state == TrainingState::forward) {
    comm.all_gather_state = Kept{result.tensor, copied_out};  // the next group's copy-out lets go of it
    return;
  }
  wait_all_gather_streams(pass, copied_out);
  OnStream on(pass.w, Stream::copy);
  pass.s.tensors.drop(pass.w, result.tensor);
}

// From rank by rank to parameter by parameter.
void ParamGroup::copy_out(const Pass& pass) {
  ProgramWriter& w = pass.w;
  const std::uint32_t world = pass.s.modules.shard.size();
  if (world > 1) w.wait(all_gather_result_.event);
  Interleaving by_rank{{}, world};
  for (const std::uint32_t p : parameters_) {
    FsdpParam& param = pass.s.params[p];
    const std::uint64_t padded = pass.s.modules.cuts[p].padded_numel();
    const auto name = [&] { return pass.s.context.scenario->parameters[p].name + ".unsharded_param"; };
    param.unsharded = pass.s.tensors.allocate_again(w, param.unsharded_before, param.computed(), padded * world, name);
    param.was_gathered = true;
    if (world == 1) all_gather_input(pass, p, param.unsharded.slice);
    by_rank.parts.push_back({param.unsharded.slice, padded});
  }
  if (world > 1) w.part_rows(all_gather_result_.tensor.slice, std::move(by_rank));
}

void ParamGroup::wait_all_gather_streams(const Pass& pass, std::uint32_t event) {
  for (const Stream stream : {Stream::copy, Stream::all_gather}) {
    OnStream on(pass.w, stream);
    pass.w.wait(event);
  }
}

void ParamGroup::reshard(const Pass& pass) {
  if (training_state == TrainingState::forward && !reshard_after_forward) return;
  to_sharded(pass);
}

void ParamGroup::to_sharded(const Pass& pass) {
  if (!std::exchange(unsharded_, false)) return;
  for (const std::uint32_t p : parameters_) pass.s.tensors.clear(pass.w, pass.s.params[p].unsharded);
}

// ---- forward ----------------------------------------------------------------------------------------------------------------------

void ParamGroup::pre_forward(const Pass& pass) {
  training_state = TrainingState::forward;
  unshard(pass);
  wait_for_unshard(pass);
}

void ParamGroup::post_forward(const Pass& pass) {
  reshard(pass);
  post_forward_indices_.push_back(static_cast<std::uint32_t>(pass.s.comm.post_forward_order.size()));
  pass.s.comm.post_forward_order.push_back(module_);
  training_state = TrainingState::idle;
}

// ---- backward ---------------------------------------------------------------------------------------------------------------------

void ParamGroup::pre_backward(const Pass& pass) {
  if (training_state == TrainingState::pre_backward) return;
  training_state = TrainingState::pre_backward;
  unshard(pass);
  wait_for_unshard(pass);
  leave_casts_to_the_reduction(pass);
  backward_prefetch(pass);
}

// The module that ran before this one is gathered while this one computes.
void ParamGroup::backward_prefetch(const Pass& pass) {
  if (post_forward_indices_.empty()) return;
  const std::uint32_t index = post_forward_indices_.back();
  post_forward_indices_.pop_back();
  if (index == 0) return;
  ParamGroup& target = pass.s.groups[pass.s.comm.post_forward_order[index - 1]];
  const TrainingState before = std::exchange(target.training_state, TrainingState::pre_backward);
  target.unshard(pass);
  target.training_state = before;
}

void ParamGroup::post_backward(const Pass& pass) {
  training_state = TrainingState::post_backward;
  accumulate_unsharded_grads(pass);
  post_backward_pending = !reduce_grads;
  if (!reduce_grads) {
    take_up_casts(pass);
    if (reshard_after_backward) reshard(pass);
    return to_accumulated_grads(pass);
  }
  std::vector<Collected> grads = collect_grads(pass);
  take_up_casts(pass);
  if (reshard_after_backward) reshard(pass);
  // One input of a reduce-scatter is in flight at a time: the one before is let go of once it was read.
  std::vector<Kept>& states = pass.s.comm.reduce_scatter_states;
  for (const Kept& state : states) {
    pass.w.wait(state.event);
    pass.s.tensors.drop(pass.w, state.tensor);
  }
  states.clear();
  if (grads.empty()) return;
  wait_for_post_backward(pass);
  foreach_reduce(pass, std::move(grads));
}

void ParamGroup::accumulate_unsharded_grads(const Pass& pass) {
  for (const std::uint32_t p : parameters_) {
    FsdpParam& param = pass.s.params[p];
    if (!param.unsharded_accumulated_grad.defined() || !param.unsharded_grad.defined()) continue;
    add_in_place(pass, param.unsharded_accumulated_grad.slice, param.unsharded_grad.slice, pass.s.context.scenario->parameters[p].name + ".unsharded_accumulated_grad");
    pass.s.tensors.clear(pass.w, param.unsharded_grad);
  }
}

// What is not reduced is kept in the dtype of the reduction.
void ParamGroup::to_accumulated_grads(const Pass& pass) {
  for (const std::uint32_t p : parameters_) {
    FsdpParam& param = pass.s.params[p];
    if (!param.reduce_dtype || param.leaf_grad_dtype) continue;
    if (!param.was_gathered) throw never_gathered();
    if (!param.unsharded_grad.defined() || pass.w.declaration(param.unsharded_grad.slice.buffer).dtype == *param.reduce_dtype) continue;
    const Parameter& parameter = pass.s.context.scenario->parameters[p];
    Tensor cast = pass.s.tensors.allocate(pass.w, parameter.name + ".unsharded_accumulated_grad", *param.reduce_dtype, parameter.numel);
    pass.w.copy(cast.slice, param.unsharded_grad.slice);
    pass.s.tensors.give(pass.w, param.unsharded_accumulated_grad, cast);
    pass.s.tensors.clear(pass.w, param.unsharded_grad);
  }
}

// A first gradient stays as it was computed where the same backward reduces it: its copy into the buffer is the cast. One that is added to a wider sum is
// cast by the addition.
void ParamGroup::leave_casts_to_the_reduction(const Pass& pass) {
  for (const std::uint32_t p : parameters_)
    if (FsdpParam& param = pass.s.params[p]; param.leaf_is_wider) param.cast_is_left |= reduce_grads || param.unsharded_grad.defined();
}

// A gradient whose cast was left was reduced by now, or its backward was aborted.
void ParamGroup::take_up_casts(const Pass& pass) {
  for (const std::uint32_t p : parameters_) pass.s.params[p].cast_is_left = false;
}

// A parameter with neither gradient is left out of the collective, which gets shorter, unless zeros stand for it: where the module was told so, and where
// a sum of it waits for the other replicas.
std::vector<ParamGroup::Collected> ParamGroup::collect_grads(const Pass& pass) {
  std::vector<Collected> out;
  for (const std::uint32_t p : parameters_) {
    FsdpParam& param = pass.s.params[p];
    const Parameter& parameter = pass.s.context.scenario->parameters[p];
    if (!param.was_gathered) continue;
    if (param.unsharded_accumulated_grad.defined()) {
      out.push_back({p, redistributed(pass, p, std::exchange(param.unsharded_accumulated_grad, {}))});
    } else if (param.unsharded_grad.defined()) {
      out.push_back({p, redistributed(pass, p, std::exchange(param.unsharded_grad, {}))});
    } else if ((reduce_scatter_unused_params && parameter.has_gradient()) || (has_partial(p) && pass.s.behaviour.partial_sums == PartialSums::by_parameter)) {
      out.push_back({p, pass.s.tensors.allocate(pass.w, parameter.name + ".unsharded_zero_grad", param.handed_to_the_leaf(), parameter.numel)});
      pass.w.fill(out.back().grad.slice, 0.0);
    }
  }
  return out;
}

// Tensor-parallel ranks each have a part of such a gradient, Partial in PyTorch's words. It is added up here, where it is reduced, and not before.
Tensor ParamGroup::redistributed(const Pass& pass, std::uint32_t parameter, Tensor grad) {
  const Parameter& of = pass.s.context.scenario->parameters[parameter];
  if (pass.s.modules.placements[parameter] != Placement::replicate || of.summed_over.empty() || grad.numel() == 0) return grad;
  const Tensor sum = pass.s.tensors.allocate(pass.w, of.name + ".grad redistributed", pass.w.declaration(grad.slice.buffer).dtype, grad.numel());
  pass.w.copy(sum.slice, grad.slice);
  pass.w.collective({.group = pass.s.modules.tensor.id, .input = sum.slice, .output = sum.slice});
  pass.s.tensors.drop(pass.w, grad);
  return sum;
}

void ParamGroup::wait_for_post_backward(const Pass& pass) {
  if (post_reduce_event_) pass.w.wait(*std::exchange(post_reduce_event_, std::nullopt));
  if (!all_reduce_state_) return;
  pass.w.wait(all_reduce_state_->event);
  pass.s.tensors.drop(pass.w, std::exchange(all_reduce_state_, std::nullopt)->tensor);
}

// ---- the end of a backward --------------------------------------------------------------------------------------------------------

// A gather that nobody used: the current stream waits for it. Its memory goes back to the stream that allocated it, which does not; what is next
// allocated there comes into its place.
void ParamGroup::let_go_of_gather(const Pass& pass) {
  if (!std::exchange(all_gather_pending_, false)) return;
  const Kept result = std::exchange(all_gather_result_, {});
  if (result.event != no_index) pass.w.wait(result.event);
  if (all_gather_home_ == Stream::copy && result.tensor.defined()) pass.s.comm.let_go.push_back(result.tensor);
  else pass.s.tensors.drop(pass.w, result.tensor);
}

void ParamGroup::finalize_backward(const Pass& pass) {
  for (const auto& [stream, event] : std::exchange(pass.s.comm.last_post_reduce_events, {})) pass.w.wait(event);
  post_reduce_event_.reset();
  if (all_reduce_state_) pass.s.tensors.drop(pass.w, std::exchange(all_reduce_state_, std::nullopt)->tensor);
  for (const std::uint32_t event : std::exchange(grad_offload_events_, {})) {
    OnStream host(pass.w, Stream::host);
    pass.w.wait(event);
  }
  let_go_of_gather(pass);
  post_forward_indices_.clear();
}

// Up to 2.14 gradients that were not reduced yet stay, whatever the method's documentation says.
void ParamGroup::reset_iter_state(const Pass& pass) {
  let_go_of_gather(pass);
  wait_for_post_backward(pass);
  if (pass.s.behaviour.reset == Reset::drops_gradients) drop_gradients(pass);
  pass.s.tensors.clear(pass.w, partial_reduce_output_);
  post_backward_pending = false;
  post_forward_indices_.clear();
  training_state = TrainingState::idle;
  to_sharded(pass);
}

// Also those that were reduced: the window begins anew.
void ParamGroup::drop_gradients(const Pass& pass) {
  for (const std::uint32_t p : parameters_) {
    FsdpParam& param = pass.s.params[p];
    for (Tensor* grad : {&param.sharded_grad, &param.unsharded_grad, &param.unsharded_accumulated_grad})
      if (grad->defined()) pass.s.tensors.clear(pass.w, *grad);
  }
  take_up_casts(pass);
  partial_layout_.clear();
}

}  // namespace gradledger::torch::fully_shard
