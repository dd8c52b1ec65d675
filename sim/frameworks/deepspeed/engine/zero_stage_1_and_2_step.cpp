// ZeRO stages 1 and 2: the step, taken or skipped, and what it leaves behind.
#include "sim/frameworks/deepspeed/engine/zero_stage_1_and_2.h"

#include <algorithm>

#include "sim/engine/clipping.h"
#include "sim/frameworks/deepspeed/settings.h"

namespace gradledger {

// Stage 1 reduces now; stage 2 has, and takes what it accumulated, with offload of the parameters that this window stored.
void ZeroStage1And2::finalise_unmanaged(ProgramWriter& w) {
  if (partition_gradients_) return kept_->finalise(w, keeping());
  require_bucket();
  reduce_gradients(w);
}

void ZeroStage1And2::model_step(ProgramWriter& w) {
  micro_step_id_ = -1;
  kept_->require(keeping());
  if (!checks_overflow_) return on_value(overflow_known, 0.0, w);
  kept_->check_finite(w, keeping());
  // From DeepSpeed#6976 to DeepSpeed#7580 stage 1 kept each rank's own flag.
  if (partition_gradients_ || behaviour().stage1_overflow_agreement == Stage1OverflowAgreement::always)
    w.collective({.op = ReduceOp::max,
                  .purpose = Purpose::overflow,
                  .group = tensor_ranks().size() > 1 || in_pipeline() ? peers().id : 0,
                  .input = overflow_flag_,
                  .output = overflow_flag_});
  share_overflow(w, overflow_flag_);
  if (!decides_on_overflow()) return on_value(overflow_known, 0.0, w);
  read(w, overflow_known, overflow_flag_);
}

// Where bf16 looks for no overflow, no norm skips a step either.
bool ZeroStage1And2::skips_invalid_norms() const { return ScaledOptimizer::skips_invalid_norms() && (model_dtype_ != Dtype::bfloat16 || checks_overflow_); }

bool ZeroStage1And2::refuses_invalid_norms() const { return offload_ && weights_.size() == 1 && behaviour().offload_invalid_norm == OffloadInvalidNorm::integer; }

// DeepSpeed#2695: before it the scale that the next window will have.
double ZeroStage1And2::reported_norm_factor() const { return 1.0 / (behaviour().reported_norm_scale == ReportedNormScale::updated ? scaler_.scale() : scaler_.before_update()); }

void ZeroStage1And2::skip_step(ProgramWriter& w) {
  optimizer_zero_grad(w);
  kept_->drop(w, keeping(), true);
  if (!offload_ && behaviour().skipped_gradients == SkippedGradients::replaced) out_of_reach_ = true;
  step_done(w, false);
}

// Of each group, and of several the norm of their norms.
void ZeroStage1And2::emit_norm(ProgramWriter& w) {
  for (std::size_t g = 0; g < weights_.size(); ++g) {
    emit_group_norm(w, g);
    if (weights_.size() > 1) w.copy(group_norms_.part(static_cast<std::uint32_t>(g), 1), norm_);
  }
  if (weights_.size() == 1) return;
  w.fill(norm_squared_, 0.0);
  w.squared_norm(norm_squared_, group_norms_);
  w.copy(norm_, norm_squared_);
  w.square_root(norm_);
}

// Squares in fp64, the rank's total in fp32, one all_reduce of it.
void ZeroStage1And2::emit_group_norm(ProgramWriter& w, std::size_t group) {
  w.fill(norm_squared_, 0.0);
  kept_->add_squares(w, keeping(), group, norm_squared_);
  w.copy(norm_, norm_squared_);
  w.collective({.purpose = Purpose::norm, .group = peers().id, .input = norm_, .output = norm_});
  // DeepSpeed#551: without a model-parallel group the world stood in for it.
  if (behaviour().norm_all_reduce == NormAllReduce::twice) w.collective({.purpose = Purpose::norm, .group = peers().id, .input = norm_, .output = norm_});
  sum_over_stages(w, norm_);
  w.square_root(norm_);
  if (!weights_[group].of_experts()) return;
  // The mean over the ranks that have the same experts, of norms that are equal there already.
  const ProcessGroup& peers = weights_[group].peers();
  w.multiply(norm_, 1.0 / peers.size());
  w.collective({.purpose = Purpose::norm, .group = peers.id, .communicator = peers.communicator, .input = norm_, .output = norm_});
}

void ZeroStage1And2::finish_step(ProgramWriter& w, std::optional<double> norm) {
  kept_->begin_step(w, keeping());
  for (std::size_t g = 0; g < weights_.size(); ++g) apply(w, weights_[g], g, norm);
  weights_.all_gather(w);
  kept_->drop(w, keeping(), false);
  step_done(w, true);
}

// Unscales and clips a group's gradient, and steps with it.
void ZeroStage1And2::apply(ProgramWriter& w, FlatWeights& group, std::size_t number, std::optional<double> norm) {
  Tensor flat;
  const bool shown = kept_->observe_applied(w, keeping(), number);
  const Slice gradient = kept_->step_gradient(w, keeping(), number, flat);
  const bool unscales = config().fp16.enabled || behaviour().bf16_unscale_and_clip == Bf16UnscaleAndClip::done;
  {
    OnStream owner(w, kept_->step_stream());
    if (const double factor = unscale_and_clip_factor(unscaled_by(), norm, gradient_clipping_of(scenario()), invalid_norm_as(norm)); factor != 1.0 && unscales)
      w.multiply(gradient, factor);
    if (!shown) w.observe(w.view(group.master_name() + ".grad", group.partition_pieces(gradient)), Role::applied_gradient, 1.0, false);
  }
  group.step(w, gradient);
  tensors_.drop(w, flat);
}

void ZeroStage1And2::optimizer_zero_grad(ProgramWriter& w) {
  DeepSpeedEngine::optimizer_zero_grad(w);
  for (Tensor& accum : grad_accum_) tensors_.clear(w, accum);
}

}  // namespace gradledger
