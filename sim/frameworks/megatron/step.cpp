// A step of the chained optimizers: gradients for it, overflows, one norm for all or one for each, clipping, updates, and the gather of weights.
#include <cmath>
#include <utility>

#include "sim/frameworks/megatron/megatron_engine.h"

namespace gradledger::megatron {

void MegatronEngine::step(ProgramWriter& w) {
  child_at_ = 0;
  applied_ = true;
  found_inf_ = false;
  squares_.clear();
  norm_.reset();
  prepare_grads(w);
}

void MegatronEngine::prepare_grads(ProgramWriter& w) {
  for (; child_at_ < optimizers_.size(); ++child_at_) {
    ChildOptimizer& child = optimizers_[child_at_];
    child.copy_model_grads_to_main_grads(ddp_, w);
    if (!child.scaler().enabled()) continue;
    child.unscale(w);
    // Nothing in a linear run overflows but what the script plants.
    if (!linear() || !setup().context.timeline->planted.empty()) return read(w, Stage::found_inf, child.found_inf());
    child.scaler().update(false);
  }
  const bool scales = !optimizers_.empty() && optimizers_.front().scaler().enabled();
  if (scales && optimizers_.front().shares_memory()) gradient_scale_ = 1.0;
  if (scales) w.report(StepFact::skipped, found_inf_ ? 1.0 : 0.0);
  stepped_ = true;
  if (found_inf_) {
    w.report(StepFact::updated, 0.0);
    w.report(StepFact::loss_scale, optimizers_.front().scaler().scale());
    return;
  }
  child_at_ = 0;
  grad_norm(w);
}

void MegatronEngine::found_inf_is(bool found, ProgramWriter& w) {
  optimizers_[child_at_++].scaler().update(found);
  found_inf_ |= found;
  prepare_grads(w);
}

bool MegatronEngine::shares_stats() const {
  bool shared = setup().behaviour.joint_norm;
  for (const ChildOptimizer& child : optimizers_) shared &= child.stats_group().ranks == optimizers_.front().stats_group().ranks;
  return shared;
}

// Optimizers that share a group have one norm; else the root of the sum of the squares of each. A lone one was not chained once, and had its norm
// computed to clip alone.
void MegatronEngine::grad_norm(ProgramWriter& w) {
  const bool chained = optimizers_.size() > 1 || setup().behaviour.chains_one;
  if (!chained && setup().config->optimizer.clip_grad <= 0) return clip(w);
  const bool shared = shares_stats();
  while (child_at_ < optimizers_.size()) {
    std::vector<const ChildOptimizer*> together;
    const std::size_t first = child_at_;
    for (; child_at_ < optimizers_.size() && (shared || child_at_ == first); ++child_at_) together.push_back(&optimizers_[child_at_]);
    ChildOptimizer::norm_squared(together, w);
    if (!linear()) return read(w, Stage::total_norm, together.front()->total_norm());
  }
  clip(w);
}

// The host's numbers are of double precision from here on.
void MegatronEngine::total_norm_is(double squared, ProgramWriter& w) {
  squares_.push_back(squared);
  if (child_at_ < optimizers_.size()) return grad_norm(w);
  if (squares_.size() == 1) {
    norm_ = std::sqrt(squared);
  } else {
    double sum = 0;
    for (const double of_one : squares_) sum += std::sqrt(of_one) * std::sqrt(of_one);
    norm_ = std::sqrt(sum);
  }
  w.report(StepFact::gradient_norm, *norm_);
  clip(w);
}

void MegatronEngine::clip(ProgramWriter& w) {
  const double limit = setup().config->optimizer.clip_grad;
  if (limit > 0 && setup().behaviour.asks_for_norm_groups && !std::exchange(agreed_, true))
    for (ChildOptimizer& child : optimizers_) child.agree_on_norm_groups(w);
  if (limit > 0 && norm_) {
    w.report(StepFact::clipping_norm, *norm_);
    const double coefficient = limit / (*norm_ + 1.0e-6);  // no tolerance: part of the formula
    if (coefficient < 1.0)
      for (ChildOptimizer& child : optimizers_) child.clip(static_cast<float>(coefficient), w);
  }
  count_zeros(w);
  update(w);
}

// Once for all optimizers that share a group.
void MegatronEngine::count_zeros(ProgramWriter& w) {
  if (!counts_zeros()) return;
  for (std::size_t i = 0; i < optimizers_.size(); ++i)
    if (i == 0 || !shares_stats()) optimizers_[i].count_zeros(w);
}

void MegatronEngine::update(ProgramWriter& w) {
  const DdpOptions& ddp = setup().config->ddp;
  for (ChildOptimizer& child : optimizers_) {
    child.step_with_ready_grads(w);
    if (!ddp.use_distributed_optimizer || ddp.overlap_param_gather) continue;
    if (setup().behaviour.gathers_all) ddp_.start_param_sync(false, w);
    else ddp_.gather_buffer(child.of_experts(), w);
  }
  w.report(StepFact::updated, 1.0);
  if (!optimizers_.empty() && optimizers_.front().scaler().enabled()) w.report(StepFact::loss_scale, optimizers_.front().scaler().scale());
}

}  // namespace gradledger::megatron
