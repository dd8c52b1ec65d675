// ZeRO stages 1 and 2: the step, taken or skipped, and what it leaves behind.
#include "sim/frameworks/deepspeed/engine/zero_stage_1_and_2.h"

#include <algorithm>

#include "sim/engine/clipping.h"
#include "sim/frameworks/deepspeed/settings.h"

namespace gradledger {

// Stage 1 reduces now; stage 2 has, and takes what it accumulated, with offload of the parameters that this window stored.
void ZeroStage1And2::finalise_unmanaged(ProgramWriter& w) {
  if (!partition_gradients_) {
    require_bucket();
    return reduce_gradients(w);
  }
  if (!offload_) {
    if (to_partition_) {
      make_partitions(w);
    } else {
      if (!all_grad_tensors_known_) throw FrameworkError{"KeyError", "0"};
      if (!all_grad_tensors_) throw FrameworkError{"TypeError", "'NoneType' object is not subscriptable"};
      take_averaged_gradients(w);
    }
    return;
  }
  for (const OwnedPart& part : weights_.parts()) {
    if (!host_holds_window_[part.parameter]) continue;
    if (to_partition_) {
      keep_of_partition(w, part.parameter);
      continue;
    }
    Tensor on_device = tensors_.allocate(w, "temp_grad_buffer_for_gpu_offload", model_dtype_, numel(part.parameter));
    w.copy_over_the_bus(on_device.slice, accumulated_on_host_[part.parameter].slice, pinned());
    to_master_gradient(w, part.parameter, on_device.slice, on_device.slice.part(part.parameter_offset, part.numel));
    tensors_.drop(w, on_device);
  }
}

void ZeroStage1And2::require_averaged_gradients() const {
  if (offload_) return;
  for (std::size_t g = 0; to_partition_ && g < partition_sum_.size(); ++g) {
    if (partition_sum_[g].defined()) continue;
    if (!partition_known_[g]) throw FrameworkError{"KeyError", std::to_string(g)};
    throw FrameworkError{"TypeError", "'NoneType' object is not iterable"};
  }
  if (to_partition_ || averaged_state_ == Averaged::set) return;
  if (averaged_state_ == Averaged::never) throw FrameworkError{"KeyError", "0"};
  throw FrameworkError{"TypeError", "'NoneType' object is not iterable"};
}

// DeepSpeed#8280: before it the largest element of nothing was asked for.
void ZeroStage1And2::require_finite_test() const {
  if (behaviour().empty_parameter != EmptyParameter::looked_up || offload_) return;
  for (const std::uint32_t p : learned())
    if (numel(p) == 0 && weights_.of(p).owns_place(p))
      throw FrameworkError{"RuntimeError", "max(): Expected reduction dim to be specified for input.numel() == 0."};
}

void ZeroStage1And2::model_step(ProgramWriter& w) {
  micro_step_id_ = -1;
  require_averaged_gradients();
  if (!checks_overflow_) return on_value(overflow_known, 0.0, w);
  require_finite_test();
  if (!offload_) {
    w.fill(overflow_flag_, 0);
    for (const Tensor& gradient : averaged_)
      if (gradient.defined()) w.check_finite(overflow_flag_, gradient.slice);
  }
  // From DeepSpeed#6976 to DeepSpeed#7580 stage 1 kept each rank's own flag.
  if (partition_gradients_ || behaviour().stage1_overflow_agreement == Stage1OverflowAgreement::always)
    w.collective({.op = ReduceOp::max, .purpose = Purpose::overflow, .input = overflow_flag_, .output = overflow_flag_});
  if (!decides_on_overflow()) return on_value(overflow_known, 0.0, w);
  read(w, overflow_known, overflow_flag_);
}

// Where bf16 looks for no overflow, no norm skips a step either.
bool ZeroStage1And2::skips_invalid_norms() const { return ScaledOptimizer::skips_invalid_norms() && (model_dtype_ != Dtype::bfloat16 || checks_overflow_); }

// DeepSpeed#2695: before it the scale that the next window will have.
double ZeroStage1And2::reported_norm_factor() const { return 1.0 / (behaviour().reported_norm_scale == ReportedNormScale::updated ? scaler_.scale() : scaler_.before_update()); }

void ZeroStage1And2::skip_step(ProgramWriter& w) {
  optimizer_zero_grad(w);
  drop_accumulators(w, true);
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

// Squares in fp64, the rank's total in fp32, one all_reduce of it. With offload: of the parameters whose norm was recorded.
void ZeroStage1And2::emit_group_norm(ProgramWriter& w, std::size_t group) {
  w.fill(norm_squared_, 0.0);
  if (offload_) {
    for (const OwnedPart& part : weights_[group].parts()) {
      if (norm_recorded_[part.parameter]) w.accumulate(norm_squared_, recorded_norms_.part(part.parameter, 1));
      else if (behaviour().unused_norm == UnusedNorm::required) throw FrameworkError{"KeyError", std::to_string(part.parameter)};
    }
  } else {
    for (std::size_t i = weights_[group].first_part(); i < weights_[group].end_of_parts(); ++i)
      if (averaged_[i].defined()) w.squared_norm(norm_squared_, averaged_[i].slice);
  }
  w.copy(norm_, norm_squared_);
  w.collective({.purpose = Purpose::norm, .group = peers().id, .input = norm_, .output = norm_});
  // DeepSpeed#551: without a model-parallel group the world stood in for it.
  if (behaviour().norm_all_reduce == NormAllReduce::twice) w.collective({.purpose = Purpose::norm, .group = peers().id, .input = norm_, .output = norm_});
  sum_over_stages(w, norm_);
  w.square_root(norm_);
  if (!weights_[group].of_experts()) return;
  // The mean over the ranks that have the same experts, of norms that are equal there already.
  w.multiply(norm_, 1.0 / weights_[group].peers().size());
  w.collective({.purpose = Purpose::norm, .group = weights_[group].peers().id, .input = norm_, .output = norm_});
}

void ZeroStage1And2::finish_step(ProgramWriter& w, std::optional<double> norm) {
  if (!offload_)
    for (Tensor& grad : grad_) tensors_.clear(w, grad);
  for (std::size_t g = 0; g < weights_.size(); ++g) apply(w, weights_[g], g, norm);
  weights_.all_gather(w);
  drop_accumulators(w, false);
  step_done(w, true);
}

// Unscales and clips a group's gradient, and steps with it.
void ZeroStage1And2::apply(ProgramWriter& w, FlatWeights& group, std::size_t number, std::optional<double> norm) {
  Tensor flat;
  if (!offload_) flat = flat_gradient(w, group, number);
  const Slice gradient = offload_ ? master_gradient_[number] : flat.slice;
  const bool unscales = config().fp16.enabled || behaviour().bf16_unscale_and_clip == Bf16UnscaleAndClip::done;
  if (offload_) w.host_waits();
  {
    OnStream owner(w, offload_ ? Stream::host : Stream::compute);
    if (const double factor = unscale_and_clip_factor(unscaled_by(), norm, gradient_clipping_of(scenario()), invalid_norm_as(behaviour().norm_masking)); factor != 1.0 && unscales)
      w.multiply(gradient, factor);
    w.observe(w.view(group.master_name() + ".grad", group.partition_pieces(gradient)), Role::applied_gradient, 1.0, false);
  }
  group.step(w, gradient);
  tensors_.drop(w, flat);
}

// averaged_gradients of the group, end to end, in fp32; they are let go.
Tensor ZeroStage1And2::flat_gradient(ProgramWriter& w, const FlatWeights& group, std::size_t number) {
  if (to_partition_) {
    Tensor flat;
    tensors_.share(w, flat, partition_sum_[number]);
    return flat;
  }
  Tensor flat = tensors_.allocate(w, group.master_name() + ".grad", Dtype::float32, group.layout().partition());
  std::uint32_t at = 0;
  for (std::size_t i = group.first_part(); i < group.end_of_parts(); ++i) {
    if (all_grad_tensors_) tensors_.clear(w, (*all_grad_tensors_)[i]);
    if (!averaged_[i].defined()) continue;
    w.copy(flat.slice.part(at, averaged_[i].numel()), averaged_[i].slice);
    at += averaged_[i].numel();
    tensors_.clear(w, averaged_[i]);
  }
  if (Tensor& padding = averaged_padding_[number]; padding.defined()) {
    w.copy(flat.slice.part(flat.numel() - padding.numel(), padding.numel()), padding.slice);
    tensors_.clear(w, padding);
  }
  return flat;
}

// What a step, taken or skipped, leaves behind: nothing on the device; on the host the accumulators and the master gradient stay.
void ZeroStage1And2::drop_accumulators(ProgramWriter& w, bool skipped) {
  // live-33: with offload a skipped step forgets norms and flag alone.
  if (!offload_ || !skipped || behaviour().fp32_partition_when_skipped == Fp32PartitionWhenSkipped::dropped) drop_partitions(w, skipped);
  if (!offload_) {
    for (Tensor& gradient : averaged_) tensors_.clear(w, gradient);
    for (Tensor& padding : averaged_padding_) tensors_.clear(w, padding);
    averaged_state_ = Averaged::none;
    if (all_grad_tensors_)
      for (Tensor& gradient : *all_grad_tensors_) tensors_.clear(w, gradient);
    all_grad_tensors_.reset();
    return;
  }
  std::fill(norm_recorded_.begin(), norm_recorded_.end(), false);
  std::fill(host_holds_window_.begin(), host_holds_window_.end(), false);
  w.fill(overflow_flag_, 0);
  if (behaviour().stale_clear != StaleClear::zero) return;
  OnStream by_the_host(w, Stream::host);
  for (const Slice gradient : master_gradient_) w.fill(gradient, 0.0);
  for (const Tensor& host : accumulated_on_host_)
    if (host.defined()) w.fill(host.slice, 0.0);
}

void ZeroStage1And2::optimizer_zero_grad(ProgramWriter& w) {
  DeepSpeedEngine::optimizer_zero_grad(w);
  for (Tensor& accum : grad_accum_) tensors_.clear(w, accum);
}

}  // namespace gradledger
