// What a loop does with the gradients: steps of the optimizer and of a GradScaler, zero_grad, clipping, and what it does by hand.
#include "sim/engine/clipping.h"
#include "sim/engine/loop_norm.h"
#include "sim/frameworks/torch/ddp/distributed_data_parallel.h"
#include "sim/frameworks/plain_step.h"
#include "sim/frameworks/torch/loop_step.h"
#include "sim/frameworks/torch/scalar_types.h"
#include "sim/scenario/layout.h"

namespace gradledger::torch {

void DistributedDataParallel::step(const events::Step& event, const Pass& pass) {
  if (!scaler_.enabled() || event.past_scaler) return optimizer_step(pass);
  if (!scaler_.unscaled()) unscale(pass);
  check_inf_checks(scaler_);
  // Nothing in a linear run overflows but what the script plants.
  if (linear() && context_.timeline->planted.empty()) return scaler_update(false, pass);
  read(pass.w, Stage::found_inf, found_inf_);
}

void DistributedDataParallel::scaler_update(bool found_inf, const Pass& pass) {
  stepped_ = true;
  end_scaled_step(scaler_, found_inf, pass.w, [&] { optimizer_step(pass); });
}

void DistributedDataParallel::optimizer_step(const Pass& pass) {
  std::vector<ViewPiece> applied;
  for (std::uint32_t p = 0; p < parameter_count(); ++p)
    if (gradients_.grad[p].defined()) applied.push_back({gradients_.grad[p].slice, static_cast<std::int32_t>(p), 0});
  pass.w.observe(pass.w.view("param.grad", std::move(applied)), Role::applied_gradient, gradient_scale_, false);
  stepped_ = true;
  for (std::uint32_t p = 0; p < parameter_count(); ++p)
    if (gradients_.grad[p].defined()) update(pass.w, p, gradients_.grad[p].slice);
  pass.w.report(StepFact::updated, 1.0);
}

// fp32 takes the optimizer's kernel; other weights have SGD alone.
void DistributedDataParallel::update(ProgramWriter& w, std::uint32_t p, Slice gradient) {
  const OptimizerConfig& optimizer = scenario().engine.optimizer_of(p);
  if (scenario().dtype_of(p) != Dtype::float32)
    return low_precision_sgd(gradients_.tensors, w, parameter(p).name, scenario().dtype_of(p), weights_[p], gradient, optimizer.learning_rate);
  optimizers_[p].begin_step();
  if (w.declaration(gradient.buffer).dtype == Dtype::float32) return optimizers_[p].update(w, weights_[p], gradient, 0);
  update_by_16_bits(w, p, gradient);
}

// Of a gradient that a hook left in 16 bits. With the weight it makes fp32, which SGD and the weight decay of Adam begin with. A moment takes its own dtype alone.
void DistributedDataParallel::update_by_16_bits(ProgramWriter& w, std::uint32_t p, Slice gradient) {
  const OptimizerConfig& optimizer = scenario().engine.optimizer_of(p);
  if (optimizer.adam() && (optimizer.type == OptimizerType::adamw || optimizer.weight_decay == 0)) {
    if (optimizer.weight_decay != 0) w.multiply(weights_[p], 1.0 - optimizer.learning_rate * optimizer.weight_decay);
    throw moments_of_another_dtype(w.declaration(gradient.buffer).dtype);
  }
  Tensor wide = gradients_.tensors.allocate(w, parameter(p).name + ".grad in fp32", Dtype::float32, gradient.numel);
  w.copy(wide.slice, gradient);
  optimizers_[p].update(w, weights_[p], wide.slice, 0);
  gradients_.tensors.drop(w, wide);
}

// unscale_: inf is looked for in what was there before, in every gradient.
void DistributedDataParallel::unscale(const Pass& pass) {
  check_unscale(scaler_);
  pass.w.fill(found_inf_, 0);
  bool any = false;
  for (std::uint32_t p = 0; p < parameter_count(); ++p) {
    if (!gradients_.grad[p].defined()) continue;
    if (pass.w.declaration(gradients_.grad[p].slice.buffer).dtype == Dtype::float16) throw FrameworkError{"ValueError", "Attempting to unscale FP16 gradients."};
    any = true;
    pass.w.check_finite(found_inf_, gradients_.grad[p].slice);
    if (scaler_.unscale_factor() != 1.0) pass.w.multiply(gradients_.grad[p].slice, scaler_.unscale_factor());
  }
  scaler_.set_unscaled(any);
  gradient_scale_ = 1.0;
}

void DistributedDataParallel::zero_grad(bool set_to_none, bool plain_alone, const Pass& pass) {
  for (std::uint32_t p = 0; p < parameter_count(); ++p) {
    Tensor& grad = gradients_.grad[p];
    if (!grad.defined() || (plain_alone && !config_->is_plain(parameter(p).name))) continue;
    if (set_to_none) gradients_.tensors.clear(pass.w, grad);
    else pass.w.fill(grad.slice, 0.0);
  }
}

void DistributedDataParallel::clip(const events::ClipGradients& event, const Pass& pass) {
  if (linear()) return;  // the ledger asks where contributions go, not how long they are
  const ProcessGroup group = group_named(scenario(), context_.timeline->contract.groups, context_.timeline->group_names[event.over], context_.rank);
  norm_dtype_ = emit_loop_norm(pass.w, gradients_.tensors, gradients_.grad, {norm_, parameter_norm_, norm_squared_}, group);
  pass.w.report(StepFact::loop_norm, norm_, 1.0);
  max_norm_ = event.max_norm;
  read(pass.w, Stage::clip_norm, norm_);
}

void DistributedDataParallel::clip_by(double norm, const Pass& pass) {
  const float factor = loop_clip_factor(norm, max_norm_, norm_dtype_);
  for (const Tensor& grad : gradients_.grad)
    if (grad.defined()) pass.w.multiply(grad.slice, factor);
}

void DistributedDataParallel::scale_gradients(const events::ScaleGradients& event, const Pass& pass) {
  for (const Tensor& grad : gradients_.grad)
    if (grad.defined()) pass.w.multiply(grad.slice, event.by[context_.rank]);
}

// A gradient that some rank of the group lacks leaves the others waiting, as it does in PyTorch.
void DistributedDataParallel::all_reduce(const events::AllReduce& event, const Pass& pass) {
  const ProcessGroup group = group_named(scenario(), context_.timeline->contract.groups, context_.timeline->group_names[event.over], context_.rank);
  if (group.size() == 1) return;
  if (!event.of_gradients) return all_reduce_scalar(gradients_.tensors, pass.w, group);
  for (const Tensor& grad : gradients_.grad) {
    if (!grad.defined() || grad.numel() == 0) continue;
    pass.w.collective({.purpose = Purpose::user, .group = group.id, .input = grad.slice, .output = grad.slice});
    if (event.mean) pass.w.divide(grad.slice, group.size());
  }
}

}  // namespace gradledger::torch
