// What a loop does with the shards: steps of the optimizer and of a GradScaler, zero_grad, clipping.
#include "sim/engine/clipping.h"
#include "sim/engine/loop_norm.h"
#include "sim/frameworks/torch/fsdp2/fsdp_module.h"
#include "sim/frameworks/plain_step.h"
#include "sim/frameworks/torch/loop_step.h"
#include "sim/scenario/layout.h"

namespace gradledger::torch::fully_shard {

void FsdpModule::step(const events::Step& event, const Pass& pass) {
  if (!scaler_.enabled() || event.past_scaler) return optimizer_step(pass);
  if (!scaler_.unscaled()) unscale(pass);
  check_inf_checks(scaler_);
  // Nothing in a linear run overflows but what the script plants.
  if (linear() && context_.timeline->planted.empty()) return scaler_update(false, pass);
  read(pass.w, Stage::found_inf, found_inf_);
}

void FsdpModule::scaler_update(bool found_inf, const Pass& pass) {
  stepped_ = true;
  end_scaled_step(scaler_, found_inf, pass.w, [&] { optimizer_step(pass); });
}

void FsdpModule::optimizer_step(const Pass& pass) {
  OnStream on(pass.w, optimizer_stream());
  std::vector<ViewPiece> applied;
  for (std::uint32_t p = 0; p < parameter_count(); ++p)
    if (const Tensor& grad = param(p).sharded_grad; grad.defined() && grad.numel() > 0) applied.push_back(piece_of(p, grad.slice).front());
  pass.w.observe(pass.w.view("param.grad", std::move(applied)), Role::applied_gradient, gradient_scale_, false);
  for (std::uint32_t p = 0; p < parameter_count(); ++p)
    if (param(p).sharded_grad.defined()) update(pass.w, p);
  pass.w.report(StepFact::updated, 1.0);
  stepped_ = true;
}

// On the stream that the caller is on. fp32 takes the optimizer's kernel; other weights have SGD alone.
void FsdpModule::update(ProgramWriter& w, std::uint32_t p) {
  const Slice gradient = param(p).sharded_grad.slice;
  if (gradient.numel == 0) return;
  const Slice weights = param(p).sharded.slice.part(0, gradient.numel);
  if (scenario().dtype_of(p) == Dtype::float32) {
    optimizers_[p].begin_step();
    return optimizers_[p].update(w, weights, gradient, 0);
  }
  low_precision_sgd(shared_.tensors, w, parameter(p).name, scenario().dtype_of(p), weights, gradient, scenario().engine.optimizer_of(p).learning_rate);
}

// unscale_: inf is looked for in every shard, and what one rank found all know.
void FsdpModule::unscale(const Pass& pass) {
  check_unscale(scaler_);
  OnStream on(pass.w, optimizer_stream());
  pass.w.fill(found_inf_, 0);
  bool any = false;
  for (std::uint32_t p = 0; p < parameter_count(); ++p) {
    const Tensor& grad = param(p).sharded_grad;
    if (!grad.defined()) continue;
    if (scenario().dtype_of(p) == Dtype::float16) throw FrameworkError{"ValueError", "Attempting to unscale FP16 gradients."};
    any = true;
    if (grad.numel() == 0) continue;
    pass.w.check_finite(found_inf_, grad.slice);
    if (scaler_.unscale_factor() != 1.0) pass.w.multiply(grad.slice, scaler_.unscale_factor());
  }
  if (any && shared_.modules.shard.size() > 1)
    pass.w.collective({.op = ReduceOp::max, .purpose = Purpose::overflow, .group = shared_.modules.shard.id, .input = found_inf_, .output = found_inf_});
  scaler_.set_unscaled(any);
  gradient_scale_ = 1.0;
}

// The optimizer knows shards. A module knows its gathered weights for as long as they are there, whose gradients are sums that were not reduced
// (_fsdp_param.py: to_unsharded, at torch 2.13).
void FsdpModule::zero_grad(bool set_to_none, bool of_module, const Pass& pass) {
  // Memory is the stream's that reduced it, and let go of there while nobody waited for that stream.
  const auto& not_waited_for = shared_.comm.last_post_reduce_events;
  OnStream on(pass.w, not_waited_for.empty() || !set_to_none ? optimizer_stream() : not_waited_for.begin()->first);
  for (const ParamGroup& group : shared_.groups)
    for (const std::uint32_t p : group.parameters()) {
      Tensor& grad = of_module && group.is_unsharded() ? param(p).unsharded_grad : param(p).sharded_grad;
      if (!grad.defined()) continue;
      if (set_to_none) shared_.tensors.clear(pass.w, grad);
      else if (grad.numel() > 0) pass.w.fill(grad.slice, 0.0);
    }
}

// ---- clipping ---------------------------------------------------------------------------------------------------------------------

void FsdpModule::clip(const events::ClipGradients& event, const Pass& pass) {
  if (linear()) return;  // the ledger asks where contributions go, not how long they are
  OnStream on(pass.w, optimizer_stream());
  const ProcessGroup over = group_named(scenario(), context_.timeline->contract.groups, context_.timeline->group_names[event.over], context_.rank);
  if (shared_.config->clips_a_used_up_generator) {
    pass.w.fill(norm_, 0.0);
  } else if (over.size() == scenario().world_size) {
    norm_of_shards(pass);
  } else {
    std::vector<Tensor> shards;
    for (const FsdpParam& of : shared_.params)
      if (of.sharded_grad.defined() && of.sharded_grad.numel() > 0) shards.push_back(of.sharded_grad);
    emit_loop_norm(pass.w, shards, norm_, one_, norm_squared_, over);
  }
  pass.w.report(StepFact::loop_norm, norm_, 1.0);
  max_norm_ = event.max_norm;
  read(pass.w, Stage::clip_norm, norm_);
}

// Squares of the norms of all gradients are reduced together; the norm is that of their roots.
void FsdpModule::norm_of_shards(const Pass& pass) {
  ProgramWriter& w = pass.w;
  std::uint32_t count = 0;
  const bool reduces = shared_.modules.shard.size() > 1;
  for (const FsdpParam& of : shared_.params) {
    if (!of.sharded_grad.defined()) continue;
    const Slice norm = norms_.part(count++, 1);
    w.fill(norm_squared_, 0.0);
    if (of.sharded_grad.numel() > 0) w.squared_norm(norm_squared_, of.sharded_grad.slice);
    w.copy(norm, norm_squared_);
    w.square_root(norm);
    if (!reduces) continue;
    w.fill(norm_squared_, 0.0);
    w.squared_norm(norm_squared_, norm);
    w.copy(norm, norm_squared_);
  }
  const Slice all = norms_.part(0, count);
  if (reduces && count > 0) w.collective({.purpose = Purpose::user, .group = shared_.modules.shard.id, .input = all, .output = all});
  w.fill(norm_, 0.0);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Slice norm = norms_.part(i, 1);
    if (reduces) w.square_root(norm);
    add_square(w, norm, i, count, norm_, norm_squared_);
  }
  w.square_root(norm_);
}

void FsdpModule::clip_by(double norm, const Pass& pass) {
  OnStream on(pass.w, optimizer_stream());
  const float factor = loop_clip_factor(norm, max_norm_);
  for (const FsdpParam& of : shared_.params)
    if (of.sharded_grad.defined() && of.sharded_grad.numel() > 0) pass.w.multiply(of.sharded_grad.slice, factor);
}

void FsdpModule::scale_gradients(const events::ScaleGradients& event, const Pass& pass) {
  OnStream on(pass.w, optimizer_stream());
  for (const FsdpParam& of : shared_.params)
    if (of.sharded_grad.defined() && of.sharded_grad.numel() > 0) pass.w.multiply(of.sharded_grad.slice, event.by[context_.rank]);
}

// Of a scalar, as admission sees to it.
void FsdpModule::all_reduce(const events::AllReduce& event, const Pass& pass) {
  const ProcessGroup over = group_named(scenario(), context_.timeline->contract.groups, context_.timeline->group_names[event.over], context_.rank);
  if (over.size() > 1) all_reduce_scalar(shared_.tensors, pass.w, over);
}

}  // namespace gradledger::torch::fully_shard
