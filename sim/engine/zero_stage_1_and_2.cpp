#include "sim/engine/zero_stage_1_and_2.h"

#include <algorithm>
#include <utility>

#include "sim/engine/clipping.h"

namespace gradledger {

namespace {

Dealing dealing_of(const DeepSpeedConfig& config, const Behaviour& behaviour) {
  if (!config.zero.round_robin_gradients) return Dealing::in_order;
  return behaviour.empty_parameter == EmptyParameter::left_out ? Dealing::in_turn_without_empty : Dealing::in_turn;
}

}  // namespace

ZeroStage1And2::ZeroStage1And2(const EngineContext& context)
    : DeepSpeedEngine(context),
      partition_gradients_(config().zero.stage == 2),
      offload_(config().offloads_optimizer()),
      contiguous_(config().zero.contiguous_gradients || offload_),
      overlap_(config().zero.overlap_comm.value_or(false)),
      uses_grad_accum_(config().zero.stage == 1 && scenario().grad_accum_dtype() != scenario().model_dtype),
      checks_overflow_(config().fp16.enabled ||
                       (config().bf16.enabled && behaviour().bf16_overflow_test == Bf16OverflowTest::configured &&
                        config().bf16.check_grad_overflow.value_or(
                                                     behaviour().bf16_overflow_check_default == Bf16OverflowCheck::on))),
      model_dtype_(scenario().model_dtype),
      acc_dtype_(scenario().grad_accum_dtype()),
      comm_dtype_(scenario().communication_dtype()),
      to_partition_(behaviour().stage12_fp32_partition == Fp32Partition::accumulates && acc_dtype_ == Dtype::float32 && model_dtype_ != Dtype::float32),
      bucket_dtype_(to_partition_ && uses_grad_accum_ ? acc_dtype_ : model_dtype_),
      scaler_(config().fp16.enabled ? LossScaler(config().fp16, true) : LossScaler::fixed(1.0)),
      weights_(scenario(), rank(), "single_partition_of_fp32_groups", dealing_of(config(), behaviour())),
      micro_step_id_(behaviour().offload_keep == OffloadKeep::counter_only ? 0 : -1),
      already_reduced_(parameter_count()),
      grad_accum_(parameter_count()),
      averaged_(weights_.parts().size()),
      partition_sum_(weights_.size()),
      partition_known_(weights_.size()),
      averaged_padding_(weights_.size()),
      accumulated_on_host_(parameter_count()),
      host_holds_window_(parameter_count()),
      norm_recorded_(parameter_count()) {}

void ZeroStage1And2::initialise(ProgramWriter& w) {
  weights_.initialise(w);
  const auto scalar = [&](const char* name, Dtype dtype, std::uint32_t numel = 1) {
    const BufferId b = w.declare(name, dtype, numel);
    w.allocate(b);
    return w.whole(b);
  };
  norm_squared_ = scalar("norm_squared", Dtype::float64);
  norm_ = scalar("norm", Dtype::float32);
  overflow_flag_ = scalar("overflow", Dtype::uint8);
  w.fill(overflow_flag_, 0);
  if (weights_.size() > 1) group_norms_ = scalar("norm_groups", Dtype::float32, static_cast<std::uint32_t>(weights_.size()));
  if (!offload_) return;
  recorded_norms_ = scalar("norm_for_param_grads", Dtype::float64, parameter_count());
  for (const FlatWeights& group : weights_) {
    const BufferId master = w.declare(group.master_name() + ".grad", Dtype::float32, group.layout().partition(), MemorySpace::host);
    w.allocate(master);
    master_gradient_.push_back(w.whole(master));
    w.fill(master_gradient_.back(), 0.0);
  }
}

// ---- forward --------------------------------------------------------------------------------------------------------------------

void ZeroStage1And2::clear_backward_seen_flag(ProgramWriter& w) {
  if (epilogue_ran_)
    for (Tensor& accum : grad_accum_) tensors_.clear(w, accum);
  epilogue_ran_ = false;
}

// ---- backward: each parameter's hook ----------------------------------------------------------------------------------------------

void ZeroStage1And2::gradient_ready(ProgramWriter& w, std::uint32_t p) {
  if (coalescing()) return;
  if (!has_hooks()) return;
  setup_buckets(w);
  if (uses_grad_accum_) drain(w, p);
  if (partition_gradients_ || (overlap_ && boundary_mirror())) push(w, p);
}

// param.grad goes into param.grad_accum.
void ZeroStage1And2::drain(ProgramWriter& w, std::uint32_t p) {
  const bool add = grad_accum_[p].defined();
  if (!add) grad_accum_[p] = tensors_.allocate(w, parameter_name(p) + ".grad_accum", acc_dtype_, numel(p));
  if (add) w.accumulate(grad_accum_[p].slice, grad_[p].slice);
  else w.copy(grad_accum_[p].slice, grad_[p].slice);
  tensors_.clear(w, grad_[p]);
}

// At the first hook after a release: in stage 2 that is once for each backward, in stage 1 once for each window.
void ZeroStage1And2::setup_buckets(ProgramWriter& w) {
  if (ready_for_gradients_) return;
  ready_for_gradients_ = true;
  ++micro_step_id_;
  if (!contiguous_) return;
  const std::uint64_t bucket_size = config().zero.reduce_bucket_size;
  // Inside no_sync with overlap_comm, and where direct backwards go without an epilogue, the hooks of several backwards fill one bucket.
  const bool several = (overlap_ && !partition_gradients_) || may_skip_epilogues();
  const std::uint64_t fills = several ? std::max<std::size_t>(backwards_in_script(), 1) : 1;
  const std::uint64_t useful = reduces_whole_buckets(config(), behaviour()) ? bucket_size : std::min<std::uint64_t>(bucket_size, fills * scenario().numel());
  bucket_.index = 0;
  for (std::uint32_t i = 0; i < (overlap_ ? 2u : 1u); ++i)
    tensors_.give(w, bucket_.buffers[i],
                  tensors_.allocate(w, "ipg_buffer[" + std::to_string(i) + "]", bucket_dtype_, useful, MemorySpace::device, bucket_size));
  share_allocation(w);
}

Tensor& ZeroStage1And2::gradient_attribute(std::uint32_t p) { return uses_grad_accum_ ? grad_accum_[p] : grad_[p]; }

// One count belongs to the caller. With param.grad_accum it is a temporary in the model dtype, unless the rank's partition is in fp32 too.
Tensor ZeroStage1And2::gradient_for_reduction(ProgramWriter& w, std::uint32_t p) {
  Tensor gradient;
  if (!uses_grad_accum_ || to_partition_) {
    tensors_.share(w, gradient, gradient_attribute(p));
    return gradient;
  }
  gradient = tensors_.allocate(w, parameter_name(p) + ".grad_accum.to(model)", model_dtype_, numel(p));
  w.copy(gradient.slice, grad_accum_[p].slice);
  return gradient;
}

void ZeroStage1And2::push(ProgramWriter& w, std::uint32_t p) {
  if (numel(p) == 0 && behaviour().empty_parameter != EmptyParameter::looked_up) return;
  const std::uint64_t bucket_size = config().zero.reduce_bucket_size;
  if (bucket_.elements + numel(p) > bucket_size) {
    // #6993 asked for the parameter's own dtype among buckets that are named by the dtype they are communicated in.
    if (comm_dtype_ != model_dtype_ && behaviour().stage12_full_bucket_key == BucketKey::model_dtype)
      throw FrameworkError{"KeyError", model_dtype_ == Dtype::float32 ? "torch.float32" : model_dtype_ == Dtype::bfloat16 ? "torch.bfloat16" : "torch.float16"};
    if (bucket_.entries.empty() && behaviour().empty_bucket == EmptyBucket::reduced) reduce_nothing(w);
    reduce_bucket(w);
    if (contiguous_ && overlap_) {
      if (behaviour().overlap_bucket_index == OverlapBucketIndex::reset_and_waits) wait_for_earlier_reductions(w);
      bucket_.index = 1 - bucket_.index;
    }
  }
  if (numel(p) == 0) return bucket_.empty.push_back(p);
  require_not_reduced(p);
  // #4084: until then the bucket was filled from param.grad, which is None once it went into param.grad_accum.
  if (contiguous_ && uses_grad_accum_ && behaviour().stage1_attr_bucket == Stage1AttrBucket::param_grad)
    throw FrameworkError{"AttributeError", "'NoneType' object has no attribute 'view'"};
  BucketEntry entry{p, gradient_for_reduction(w, p)};
  if (contiguous_ && numel(p) > bucket_size) {
    bucket_.extra_large = true;
  } else if (contiguous_) {
    const Tensor in_bucket = bucket_.buffers[bucket_.index].part(static_cast<std::uint32_t>(bucket_.elements), numel(p));
    w.copy(in_bucket.slice, entry.gradient.slice);
    bucket_.producers[static_cast<std::size_t>(w.stream())] = true;
    tensors_.share(w, entry.gradient, in_bucket);
    if (!uses_grad_accum_ || to_partition_) tensors_.share(w, gradient_attribute(p), in_bucket);
  }
  bucket_.elements += numel(p);
  bucket_.entries.push_back(entry);
}

// #8280: before it the owner of an empty parameter behind all others was looked up past the last partition.
void ZeroStage1And2::require_owner(std::uint32_t p) const {
  if (config().zero.reduce_scatter && contiguous_ && weights_.of(p).layout().offset(p) >= weights_.of(p).layout().padded())
    throw FrameworkError{"KeyError", std::to_string(p)};
}

void ZeroStage1And2::require_not_reduced(std::uint32_t p) const {
  if (already_reduced_[p])
    throw FrameworkError{"AssertionError", "The parameter " + parameter_name(p) + " has already been reduced; its gradient was computed twice"};
}

// ---- the end of a backward that reduces -----------------------------------------------------------------------------------------------

void ZeroStage1And2::reduce_gradients(ProgramWriter& w) {
  if (!partition_gradients_ && !overlap_)
    for (std::uint32_t p : weights_.order()) {
      if (gradient_attribute(p).defined()) {
        if (boundary_mirror()) push(w, p);
      } else if (behaviour().stage1_missing_gradient == Stage1Missing::pushed)
        throw FrameworkError{"AttributeError", "'NoneType' object has no attribute 'numel'"};
    }
  partition_epilogue(w);
}

// The end of a coalesced block, in the order of the groups whatever overlap_comm says.
void ZeroStage1And2::flush_coalesced(ProgramWriter& w) {
  if (overlap_) w.synchronize();
  setup_buckets(w);
  for (std::uint32_t p : weights_.order())
    if (gradient_attribute(p).defined()) push(w, p);
  partition_epilogue(w);
}

void ZeroStage1And2::partition_epilogue(ProgramWriter& w) {
  reduce_bucket(w);
  std::fill(already_reduced_.begin(), already_reduced_.end(), false);
  if (overlap_) {
    w.synchronize();
    for (Tensor& gradient : deferred_) tensors_.clear(w, gradient);
    deferred_.clear();
  }
  if (to_partition_) {
    if (!offload_ && boundary_mirror()) make_partitions(w);
  } else if (!offload_) {
    accumulate_owned(w);
  }
  for (Tensor& buffer : bucket_.buffers) tensors_.clear(w, buffer);
  tensors_.clear(w, grads_in_partition_);
  ready_for_gradients_ = false;
  for (Tensor& grad : grad_) tensors_.clear(w, grad);
  if (behaviour().stage12_epilogue_clears == EpilogueClears::grad_and_accum)
    for (Tensor& accum : grad_accum_) tensors_.clear(w, accum);
  epilogue_ran_ = true;
}

void ZeroStage1And2::backward_epilogue(ProgramWriter& w) {
  if (!uses_grad_accum_) return;
  for (std::uint32_t p : learned())
    if (grad_[p].defined()) drain(w, p);
}

// ---- step -------------------------------------------------------------------------------------------------------------------------

// Stage 1 reduces now; stage 2 has, and takes what it accumulated, with offload of the parameters that this window stored.
void ZeroStage1And2::finalise_unmanaged(ProgramWriter& w) {
  if (!partition_gradients_) {
    if (contiguous_ && !ready_for_gradients_) throw FrameworkError{"IndexError", "list index out of range"};
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

// #8280: before it the largest element of nothing was asked for.
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
  // #7580: before it stage 1 kept each rank's own flag.
  if (partition_gradients_ || behaviour().stage1_overflow_agreement == Stage1OverflowAgreement::always)
    w.collective({.op = ReduceOp::max, .purpose = Purpose::overflow, .input = overflow_flag_, .output = overflow_flag_});
  if (!decides_on_overflow()) return on_value(overflow_known, 0.0, w);
  read(w, overflow_known, overflow_flag_);
}

void ZeroStage1And2::on_value(std::uint32_t stage, double value, ProgramWriter& w) {
  if (stage == norm_known) {
    report_clipping_norm(w, value / unscaled_by());
    return finish_step(w, value);
  }
  const bool overflow = value != 0.0;
  scale_before_update_ = scaler_.scale();
  scaler_.update(overflow);
  report_decision(w, overflow, scaler_.scale());
  if (overflow) {
    optimizer_zero_grad(w);
    drop_accumulators(w, true);
    return step_done(w, false);
  }
  emit_norm(w);
  // #2695: before it the scale that the next window will have.
  const bool updated = behaviour().reported_norm_scale == ReportedNormScale::updated;
  w.report(StepFact::gradient_norm, norm_, 1.0 / (updated ? scaler_.scale() : scale_before_update_));
  if (scenario().gradient_clipping() > 0 && !linear()) return read(w, norm_known, norm_);
  finish_step(w, std::nullopt);
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
  // #551: without a model-parallel group the world stood in for it.
  if (behaviour().norm_all_reduce == NormAllReduce::twice) w.collective({.purpose = Purpose::norm, .group = peers().id, .input = norm_, .output = norm_});
  sum_over_stages(w, norm_);
  w.square_root(norm_);
  if (!weights_[group].of_experts()) return;
  // The mean over the ranks that have the same experts, of norms that are equal there already.
  w.multiply(norm_, 1.0 / weights_[group].peers().size());
  w.collective({.purpose = Purpose::norm, .group = weights_[group].peers().id, .input = norm_, .output = norm_});
}

// live-9: a step that moves the scale divides by the new one.
double ZeroStage1And2::unscaled_by() const {
  return behaviour().scale_update == ScaleUpdate::before_unscale ? scaler_.scale() : scale_before_update_;
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
  const bool masks = behaviour().norm_masking == NormMasking::where;
  const bool unscales = config().fp16.enabled || behaviour().bf16_unscale_and_clip == Bf16UnscaleAndClip::done;
  if (offload_) w.host_waits();
  {
    OnStream owner(w, offload_ ? Stream::host : Stream::compute);
    if (const double factor = unscale_and_clip_factor(unscaled_by(), norm, scenario().gradient_clipping(), masks); factor != 1.0 && unscales)
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
  // With offload a skipped step forgets norms and flag alone.
  if (!offload_ || !skipped) drop_partitions(w, skipped);
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
