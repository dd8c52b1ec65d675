// What a loop does with the shards: steps of the optimizer and of a GradScaler, zero_grad, clipping.
#include <cmath>
#include <optional>

#include "sim/engine/clipping.h"
#include "sim/engine/loop_norm.h"
#include "sim/frameworks/torch/fsdp2/errors.h"
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

// On the stream that the caller is on. fp32 takes the optimizer's kernel; other weights, and gradients in another dtype than theirs, have SGD alone.
void FsdpModule::update(ProgramWriter& w, std::uint32_t p) {
  const Slice gradient = param(p).sharded_grad.slice;
  if (gradient.numel == 0) return;
  const Slice weights = param(p).sharded.slice.part(0, gradient.numel);
  if (scenario().dtype_of(p) == Dtype::float32 && w.declaration(gradient.buffer).dtype == Dtype::float32) {
    optimizers_[p].begin_step();
    return optimizers_[p].update(w, weights, gradient, 0);
  }
  low_precision_sgd(shared_.tensors, w, parameter(p).name, scenario().dtype_of(p), weights, gradient, scenario().engine.optimizer_of(p).learning_rate);
}

// unscale_: inf is looked for in every shard, and what one rank found those know between which the first gradient is sharded. _dispatch.py:
// found_inf_reduce_handler, at torch 2.13
void FsdpModule::unscale(const Pass& pass) {
  check_unscale(scaler_);
  OnStream on(pass.w, optimizer_stream());
  pass.w.fill(found_inf_, 0);
  std::optional<Placement> first;
  for (std::uint32_t p = 0; p < parameter_count(); ++p) {
    const Tensor& grad = param(p).sharded_grad;
    if (!grad.defined()) continue;
    if (pass.w.declaration(grad.slice.buffer).dtype == Dtype::float16) throw FrameworkError{"ValueError", "Attempting to unscale FP16 gradients."};
    if (!first) first = shared_.modules.placements[p];
    if (grad.numel() == 0) continue;
    pass.w.check_finite(found_inf_, grad.slice);
    if (scaler_.unscale_factor() != 1.0) pass.w.multiply(grad.slice, scaler_.unscale_factor());
  }
  if (first && shared_.modules.shard.size() > 1)
    pass.w.collective({.op = ReduceOp::max, .purpose = Purpose::overflow, .group = shared_.modules.shard.id, .input = found_inf_, .output = found_inf_});
  if (first == Placement::shard)
    pass.w.collective({.op = ReduceOp::max, .purpose = Purpose::overflow, .group = shared_.modules.tensor.id, .input = found_inf_, .output = found_inf_});
  scaler_.set_unscaled(first.has_value());
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
  const ProcessGroup over = group_named(scenario(), context_.timeline->contract.groups, context_.timeline->group_names[event.over], context_.rank);
  const bool of_all = over.size() == scenario().world_size && !shared_.config->clips_a_used_up_generator;
  if (of_all) require_one_mesh();
  if (linear()) return;  // the ledger asks where contributions go, not how long they are
  OnStream on(pass.w, optimizer_stream());
  if (shared_.config->clips_a_used_up_generator) {
    pass.w.fill(norm_, 0.0);
    norm_dtype_ = Dtype::float32;
  } else if (of_all) {
    norm_of_shards(pass);
  } else {
    std::vector<Tensor> shards;
    for (const FsdpParam& of : shared_.params)
      if (of.sharded_grad.defined() && of.sharded_grad.numel() > 0) shards.push_back(of.sharded_grad);
    norm_dtype_ = emit_loop_norm(pass.w, shared_.tensors, shards, {norm_, one_, norm_squared_}, over);
  }
  pass.w.report(StepFact::loop_norm, norm_, 1.0);
  max_norm_ = event.max_norm;
  read(pass.w, Stage::clip_norm, norm_);
}

// Norms are stacked, and a stack has one mesh.
void FsdpModule::require_one_mesh() {
  std::optional<bool> first;
  for (std::uint32_t p = 0; p < parameter_count(); ++p) {
    if (!param(p).sharded_grad.defined()) continue;
    const bool over_both = shared_.modules.placements[p] != Placement::plain;
    if (first && *first != over_both) throw gradients_of_two_meshes(*first, shared_.modules.shard.size(), tensor_parallel_ranks(scenario()));
    first = over_both;
  }
}

// The norm is that of the norms of all gradients, each reduced over the dimensions of the mesh by which some gradient is sharded. One that is a copy
// counts there as equal parts of all ranks.
void FsdpModule::norm_of_shards(const Pass& pass) {
  ProgramWriter& w = pass.w;
  const auto defined = [&](std::uint32_t p) { return param(p).sharded_grad.defined(); };
  bool over_tensor = false;
  for (std::uint32_t p = 0; p < parameter_count(); ++p) over_tensor |= defined(p) && shared_.modules.placements[p] == Placement::shard;
  std::vector<Tensor> gradients;
  for (std::uint32_t p = 0; p < parameter_count(); ++p) {
    if (!defined(p)) continue;
    const Slice norm = norms_.part(gradients.size(), 1);
    gradients.push_back(param(p).sharded_grad);
    emit_norm_of_one(w, shared_.tensors, gradients.back().slice, norm, norm_squared_, true);
    if (!over_tensor || shared_.modules.placements[p] != Placement::replicate) continue;
    w.divide(norm, std::sqrt(static_cast<double>(shared_.modules.tensor.size())));
    round_norms(w, shared_.tensors, norm, w.declaration(gradients.back().slice.buffer).dtype);
  }
  norm_dtype_ = dtype_of_norms(w, gradients);
  const Slice norms = norms_.part(0, gradients.size());
  if (shared_.modules.shard.size() > 1) reduce_norms(pass, norms, shared_.modules.shard);
  if (over_tensor) reduce_norms(pass, norms, shared_.modules.tensor);
  w.fill(norm_, 0.0);
  for (std::uint32_t i = 0; i < norms.numel; ++i) add_square(w, norms.part(i, 1), i, norms.numel, norm_, norm_squared_);
  w.square_root(norm_);
  round_norms(w, shared_.tensors, norm_, norm_dtype_);
}

void FsdpModule::reduce_norms(const Pass& pass, Slice norms, const ProcessGroup& over) {
  if (norms.numel > 0) emit_norms_over(pass.w, shared_.tensors, norms, norm_squared_, norm_dtype_, over);
}

void FsdpModule::clip_by(double norm, const Pass& pass) {
  OnStream on(pass.w, optimizer_stream());
  const float factor = loop_clip_factor(norm, max_norm_, norm_dtype_);
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
