#include "sim/frameworks/deepspeed/engine/zero_stage3.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/engine/clipping.h"
#include "sim/frameworks/deepspeed/engine/muon.h"
#include "sim/frameworks/deepspeed/settings.h"

namespace gradledger {

ZeroStage3::ZeroStage3(const DeepSpeedContext& context)
    : ScaledOptimizer(context, LossScaler::of_zero(deepspeed_config(*context.scenario), context.behaviour)),
      offload_(config().offloads_optimizer()),
      offload_parameters_(config().offloads_parameters()),
      contiguous_(config().zero.contiguous_gradients),
      overlap_(config().zero.overlap_comm.value_or(true)),
      model_dtype_(scenario().model_dtype),
      acc_dtype_(grad_accum_dtype_of(scenario())),
      comm_dtype_(communication_dtype_of(scenario())),
      optimizer_groups_(rank_groups()),
      gradient_slice_(parameter_count()),
      reduced_storage_(parameter_count(), no_index),
      accumulator_views_(parameter_count(), no_index),
      weight_views_(parameter_count(), no_index),
      norm_recorded_(parameter_count()),
      stored_in_window_(parameter_count()) {
  for (const RankGroup& group : optimizer_groups_) optimizers_.emplace_back(group.optimizer, offload_);
  without_elements_ = std::any_of(learned().begin(), learned().end(), [this](std::uint32_t p) { return numel(p) == 0; });
  if (peers().size() == 1 || (!timeline().passed_apart && !may_end_apart())) return;
  std::vector<std::uint32_t> owners;
  std::vector<std::uint64_t> sizes;
  for (std::uint32_t p = 0; p < parameter_count(); ++p) {
    owners.push_back(scenario().parameters[p].tied_to.value_or(p));
    const bool here = std::find(learned().begin(), learned().end(), owners.back()) != learned().end();
    sizes.push_back(here && scenario().parameters[p].has_gradient() ? numel(owners.back()) : 0);
  }
  fetches_.emplace(std::move(owners), std::move(sizes));
}

// A gradient that is set raises on the ranks that have nothing but padding of the parameter, and such a rank runs no forward any more.
bool ZeroStage3::may_end_apart() const {
  const auto sets = [](const Event& e) { return e.is<events::SetGradient>(); };
  return scenario().after_error == AfterError::stop && std::any_of(timeline().events.begin(), timeline().events.end(), sets);
}

void ZeroStage3::initialise(ProgramWriter& w) {
  const auto buffer = [&](std::string name, Dtype dtype, std::uint64_t count, MemorySpace space, std::uint64_t declared = 0) {
    const BufferId b = w.declare(std::move(name), dtype, count, space, declared);
    w.allocate(b);
    return w.whole(b);
  };
  const MemorySpace optimizer_space = offload_ ? MemorySpace::host : MemorySpace::device;
  std::uint64_t total = 0;
  offset_.resize(parameter_count());
  weights_.resize(parameter_count());
  for (std::uint32_t g = 0; g < optimizer_groups_.size(); ++g) {
    group_offset_.push_back(total);
    for (std::uint32_t p : optimizer_groups_[g].parameters) {
      weights_[p] = buffer("ds_tensor[" + parameter_name(p) + "]", model_dtype_, shard(p).size, offload_parameters_ ? MemorySpace::host : MemorySpace::device);
      initialise_weights(w, weights_[p].part(0, shard(p).real), p, shard(p).offset);
      w.fill(weights_[p].part(shard(p).real, shard(p).size - shard(p).real), 0.0);
      const bool opens = groups_.empty() || groups_.back().of != g || groups_.back().size >= config().zero.sub_group_size;
      if (opens) groups_.push_back({{}, total, 0, g, {}, {}});
      groups_.back().parameters.push_back(p);
      groups_.back().size += shard(p).size;
      offset_[p] = total;
      total += shard(p).size;
    }
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    SubGroup& group = groups_[g];
    const std::string name = "fp32_partitioned_groups_flat[" + std::to_string(g) + "]";
    group.master = buffer(name, Dtype::float32, group.size, optimizer_space);
    for (std::uint32_t p : group.parameters) w.copy(in_group(group, group.master, p), weights_[p]);
    if (!offload_) continue;
    group.master_gradient = buffer(name + ".grad", Dtype::float32, group.size, MemorySpace::host);
    w.fill(group.master_gradient, 0.0);
  }
  group_offset_.push_back(total);
  for (std::size_t g = 0; g < optimizers_.size(); ++g)
    optimizers_[g].initialise(w, group_offset_[g + 1] - group_offset_[g], optimizers_.size() == 1 ? "" : "[" + std::to_string(g) + "]");
  partitions_ = buffer("grad_partitions_flat_buffer", acc_dtype_, total, optimizer_space);
  w.fill(partitions_, 0.0);
  if (uses_muon(scenario())) {
    momentum_ = buffer("momentum_buffer", acc_dtype_, total, optimizer_space);
    w.fill(momentum_, 0.0);
  }
  if (contiguous_) {
    const std::uint64_t size = config().zero.reduce_bucket_size;
    const bool several = may_skip_epilogues() || behaviour().stage3_bucket_start == Stage3BucketStart::behind_the_last;
    const std::uint64_t fills = several ? std::max<std::size_t>(backwards_in_script(), 1) : 1;  // of one bucket
    bucket_buffer_ = tensors_.allocate(w, "ipg_bucket", comm_dtype_, std::min<std::uint64_t>(size, fills * scenario().numel()), MemorySpace::device, size);
  }
  recorded_norms_ = buffer("norm_for_param_grads", Dtype::float64, parameter_count(), MemorySpace::device);
  norm_squared_ = buffer("norm_squared", Dtype::float64, 1, MemorySpace::device);
  norm_total_ = buffer("norm_squared of all sub-groups", Dtype::float64, 1, MemorySpace::device);
  norm_ = buffer("norm", Dtype::float32, 1, MemorySpace::device);
  overflow_flag_ = buffer("overflow", Dtype::uint8, 1, MemorySpace::device);
  if (!fetches_) return;
  recorded_length_ = buffer("length of the recording", Dtype::float32, 1, MemorySpace::device);
  w.fill(recorded_length_, 0.0);
}

Slice ZeroStage3::in_group(const SubGroup& group, Slice flat, std::uint32_t p) const { return flat.part(offset_[p] - group.offset, shard(p).size); }

// ---- forward --------------------------------------------------------------------------------------------------------------------

// live-7: since DeepSpeed#7780 the counter moves here, so that a second backward without a forward in between stores instead of adding.
void ZeroStage3::clear_backward_seen_flag(ProgramWriter& w) {
  fetch_weights(w);
  const bool moves_in_block = coalescing() && behaviour().coalesce_micro_step_id == CoalesceCounter::moves;
  if ((epilogue_ran_ && behaviour().stage3_id_increment == Stage3IdIncrement::forward) || moves_in_block) ++micro_step_id_;
  epilogue_ran_ = false;
}

void ZeroStage3::backward_prologue(ProgramWriter& w) { fetch_weights(w); }

// offload_param: before a partition takes part in a gather it is copied to the device, and the host waits for it, pinned or not.
void ZeroStage3::fetch_weights(ProgramWriter& w) {
  for (std::uint32_t p = 0; offload_parameters_ && !fetches_ && p < parameter_count(); ++p) {
    if (weights_[p].numel == 0) continue;
    const Tensor fetched = tensors_.allocate(w, "ds_tensor on device", model_dtype_, weights_[p].numel);
    w.copy_over_the_bus(fetched.slice, weights_[p], false);
    tensors_.drop(w, fetched);
  }
}

// ---- backward: each parameter's hook ----------------------------------------------------------------------------------------------

void ZeroStage3::gradient_ready(ProgramWriter& w, std::uint32_t p) {
  if (coalescing()) {
    return;
  }
  push(w, p);
}

void ZeroStage3::push(ProgramWriter& w, std::uint32_t p) {
  const std::uint64_t bucket_size = config().zero.reduce_bucket_size;
  if (bucket_elements_ + numel(p) > bucket_size && bucket_elements_ > 0) reduce_bucket(w);
  // A backward without an epilogue had left the parameter in the bucket: its reduction set param.grad to None.
  if (!grad_[p].defined()) throw FrameworkError{"AttributeError", "'NoneType' object has no attribute 'numel'"};
  const bool on_a_side_stream = w.stream() != Stream::compute && behaviour().stage3_producer == Stage3Producer::current_stream;
  const Stream made_on = on_a_side_stream ? w.stream() : Stream::compute;
  if (made_on != reduction_stream()) wait_for(w, made_on);
  OnStream reduction(w, reduction_stream());
  if (contiguous_ && bucket_elements_ + numel(p) <= bucket_size) {
    const Tensor in_bucket = bucket_buffer_.part(bucket_elements_, numel(p));
    w.copy(in_bucket.slice, grad_[p].slice);
    // DeepSpeed#7534: a second hook found param.grad in the bucket, added to it there and was pushed again with the sum of both uses.
    if (contains(bucket_, p) && behaviour().tied_hook == TiedHook::per_use) w.copy(gradient_slice_[p], grad_[p].slice);
    if (!hook_follows()) tensors_.share(w, grad_[p], in_bucket);
    gradient_slice_[p] = in_bucket.slice;
  } else {
    gradient_slice_[p] = grad_[p].slice;
  }
  bucket_.push_back(p);
  bucket_elements_ += numel(p);
}

void ZeroStage3::wait_for(ProgramWriter& w, Stream producer) const {
  OnStream there(w, producer);
  const std::uint32_t produced = w.record();
  w.set_stream(reduction_stream());
  w.wait(produced);
}

// ---- the end of a backward, and of a coalesced block -----------------------------------------------------------------------------------

void ZeroStage3::reduce_gradients(ProgramWriter& w) { partition_epilogue(w); }

// The end of a coalesced block. The counter did not move inside it, so that a fresh window is stored, not added.
void ZeroStage3::flush_coalesced(ProgramWriter& w) {
  for (const SubGroup& group : groups_)
    for (std::uint32_t p : group.parameters)
      if (grad_[p].defined()) push(w, p);
  partition_epilogue(w);
}

void ZeroStage3::partition_epilogue(ProgramWriter& w) {
  reduce_bucket(w);
  {
    OnStream reduction(w, reduction_stream());
    w.host_waits();
  }
  in_flight_.clear();
  if (!offload_) averaged_state_ = Averaged::set;
  epilogue_ran_ = true;
  if (behaviour().stage3_id_increment == Stage3IdIncrement::epilogue) ++micro_step_id_;
}

// ---- step -------------------------------------------------------------------------------------------------------------------------

// Every backward has reduced; with offload the parameters of this window go on to the master gradient, the others keep what they have.
void ZeroStage3::finalise_unmanaged(ProgramWriter& w) {
  for (std::uint32_t p = 0; offload_ && p < parameter_count(); ++p)
    if (stored_in_window_[p]) to_master_gradient(w, p);
}

void ZeroStage3::model_step(ProgramWriter& w) {
  if (fetches_) fetches_->begin_step();
  std::fill(stored_in_window_.begin(), stored_in_window_.end(), false);
  micro_step_id_ = 0;
  epilogue_ran_ = false;
  // DeepSpeed#7780: before it what a backward without an epilogue had put into the bucket stayed there.
  if (!bucket_.empty() && behaviour().stage3_bucket_at_step == Stage3BucketAtStep::cleared) clear_bucket();
  if (!config().fp16.enabled) return on_value(overflow_known, 0.0, w);
  {
    OnStream owner(w, offload_ ? Stream::host : Stream::compute);
    w.fill(overflow_flag_, 0);
    w.check_finite(overflow_flag_, partitions_);  // all of it, the partitions that this window did not touch included
  }
  w.collective({.op = ReduceOp::max, .purpose = Purpose::overflow, .group = peers().id, .input = overflow_flag_, .output = overflow_flag_});
  share_overflow(w, overflow_flag_);
  if (!decides_on_overflow()) return on_value(overflow_known, 0.0, w);
  read(w, overflow_known, overflow_flag_);
}

void ZeroStage3::skip_step(ProgramWriter& w) {
  optimizer_zero_grad(w);
  std::fill(norm_recorded_.begin(), norm_recorded_.end(), false);
  if (!offload_) averaged_state_ = Averaged::never;
  step_done(w, false);
}

// What a backward's epilogue lists for the step. What overflowed is looked for in the partitions themselves, whether listed or not.
void ZeroStage3::require_gradients() const {
  if (offload_ || averaged_state_ == Averaged::set) return;
  if (averaged_state_ == Averaged::never) throw FrameworkError{"KeyError", "0"};
  throw FrameworkError{"TypeError", "'NoneType' object is not iterable"};
}

// One all_reduce a sub-group: fp64, or fp32 of the recorded norms with offload.
void ZeroStage3::emit_norm(ProgramWriter& w) {
  w.fill(norm_total_, 0.0);
  for (const SubGroup& group : groups_) {
    w.fill(norm_squared_, 0.0);
    for (std::uint32_t p : group.parameters) {
      if (!counts_in_norm(p)) continue;
      if (!offload_) w.squared_norm(norm_squared_, partition_of(p));
      else if (norm_recorded_[p]) w.accumulate(norm_squared_, recorded_norms_.part(p, 1));
    }
    if (offload_) {
      w.copy(norm_, norm_squared_);
      w.collective({.purpose = Purpose::norm, .group = peers().id, .communicator = reduces_in(), .input = norm_, .output = norm_});
      sum_over_stages(w, norm_);
      w.copy(norm_squared_, norm_);
    } else {
      w.collective({.purpose = Purpose::norm, .group = peers().id, .communicator = reduces_in(), .input = norm_squared_, .output = norm_squared_});
      sum_over_stages(w, norm_squared_);
    }
    w.accumulate(norm_total_, norm_squared_);
  }
  w.copy(norm_, norm_total_);
  w.square_root(norm_);
}

// Without offload the norm stays in fp64, and so does what clips by it.
Slice ZeroStage3::awaited_norm() const { return offload_ ? norm_ : norm_total_; }

double ZeroStage3::norm_of(double awaited) const { return offload_ ? awaited : std::sqrt(awaited); }

void ZeroStage3::finish_step(ProgramWriter& w, std::optional<double> norm) {
  const NormAs invalid = invalid_norm_as(norm);
  const double clip = gradient_clipping_of(scenario());
  const double factor = offload_ ? unscale_and_clip_factor(unscaled_by(), norm, clip, invalid) : unscale_and_clip_factor<double>(unscaled_by(), norm, clip, invalid);
  apply_muon(w);
  for (BaseOptimizer& optimizer : optimizers_) optimizer.begin_step();
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    SubGroup& group = groups_[g];
    const std::string name = "fp32_partitioned_groups_flat[" + std::to_string(g) + "].grad";
    Tensor flat;
    Slice gradient = group.master_gradient;
    if (!offload_) {
      const Slice accumulated = partitions_.part(group.offset, group.size);
      // live-31: flattening one tensor is no copy, nor is a cast to the dtype that it has: the step unscales and clips the accumulator itself.
      const bool aliases = group.parameters.size() == 1 && acc_dtype_ == Dtype::float32;
      if (!aliases) flat = tensors_.allocate(w, name, Dtype::float32, group.size);
      gradient = aliases ? accumulated : flat.slice;
      if (!aliases) w.copy(gradient, accumulated);
    }
    if (offload_) w.host_waits();
    {
      OnStream owner(w, offload_ ? Stream::host : Stream::compute);
      const auto applies = [&](double scale) { w.observe(w.view(name, group_pieces(group, gradient)), Role::applied_gradient, scale, false); };
      // What Muon makes of it has lost its scale: the update is multiplied and divided by the new one alike.
      if (uses_muon(scenario())) applies(scaler_.before_update());
      if (factor != 1.0) w.multiply(gradient, factor);
      if (!uses_muon(scenario())) applies(1.0);
      optimizers_[group.of].update(w, group.master, gradient, group.offset - group_offset_[group.of]);
    }
    for (std::uint32_t p : group.parameters) store_weights(w, weights_[p], in_group(group, group.master, p));
    tensors_.drop(w, flat);
  }
  if (!offload_) averaged_state_ = Averaged::none;
  std::fill(norm_recorded_.begin(), norm_recorded_.end(), false);
  if (behaviour().stale_clear == StaleClear::zero) clear_stale(w);
  if (fetches_) gather(w, fetches_->end_step());
  step_done(w, true);
}

// The master's values, cast. From host to host it is the CPU that copies; one that must cross the bus is waited for.
void ZeroStage3::store_weights(ProgramWriter& w, Slice weights, Slice master) {
  if (!offload_parameters_) return w.copy(weights, master);
  if (!offload_) return w.copy_over_the_bus(weights, master, false);
  OnStream host(w, Stream::host);
  w.copy(weights, master);
}

void ZeroStage3::clear_stale(ProgramWriter& w) {
  OnStream owner(w, offload_ ? Stream::host : Stream::compute);
  w.fill(partitions_, 0.0);
  if (!offload_) return;
  for (const SubGroup& group : groups_) w.fill(group.master_gradient, 0.0);
}

// The buffer is not touched; the next backward stores over it.
void ZeroStage3::optimizer_zero_grad(ProgramWriter& w) {
  DeepSpeedEngine::optimizer_zero_grad(w);
  micro_step_id_ = 0;
  epilogue_ran_ = false;
}

}  // namespace gradledger
