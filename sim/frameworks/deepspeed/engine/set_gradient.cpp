// What users do to a gradient through the framework's API: they get it, multiply it and set it again. On every wrapper param.grad comes
// first, where there is one, and the wrapper's own buffers only behind it.
#include "sim/frameworks/deepspeed/engine/bf16_optimizer.h"
#include "sim/frameworks/deepspeed/engine/deepspeed_engine.h"
#include "sim/frameworks/deepspeed/engine/zero_stage3.h"
#include "sim/frameworks/deepspeed/engine/zero_stage_1_and_2.h"

namespace gradledger {

void DeepSpeedEngine::set_gradient(const Event& event, ProgramWriter& w) {
  if (behaviour().set_gradient_api == SetGradientApi::absent)
    throw FrameworkError{"ImportError", std::string("cannot import name '") + (event.local ? "safe_set_local_grad" : "safe_set_full_grad") + "' from 'deepspeed.utils'"};
  if (!holds(scenario(), rank(), event.parameter)) return;
  if (event.local) return set_own_partition(event, w);
  if (grad_[event.parameter].defined() && sets_param_grad()) return w.multiply(grad_[event.parameter].slice, event.factor);
  set_whole_gradient(event, w);
}

// Stage 0: what the getter returns is None.
void DeepSpeedEngine::set_whole_gradient(const Event&, ProgramWriter&) {
  throw FrameworkError{"TypeError", "unsupported operand type(s) for *: 'NoneType' and 'float'"};
}

void DeepSpeedEngine::set_own_partition(const Event&, ProgramWriter&) {
  throw FrameworkError{"AssertionError", "This API is only defined for ZeRO-3 partitioned parameters"};
}

Tensor DeepSpeedEngine::times_factor(const Event& event, ProgramWriter& w, Slice held, std::uint32_t offset) {
  const Tensor full = tensors_.allocate(w, "reduce_buffer", Dtype::float32, numel(event.parameter));
  w.fill(full.slice, 0.0);
  if (held.numel > 0) w.copy_over_the_bus(full.slice.part(offset, held.numel), held, false);
  const bool of_expert = scenario().parameters[event.parameter].expert.has_value();
  const std::uint32_t group = of_expert ? expert_data_parallel_group(scenario(), rank()).id : peers().id;
  w.collective({.purpose = Purpose::user, .group = group, .input = full.slice, .output = full.slice});
  w.multiply(full.slice, event.factor);
  return full;
}

// DeepSpeed#7302 reached the local API of stage 3 alone.
bool DeepSpeedEngine::has_recorded_norm_refreshed(const Event& event) const {
  const SetGradientNorm rule = behaviour().set_gradient_norm;
  return rule == SetGradientNorm::refreshed || (rule == SetGradientNorm::local_refreshed && event.local);
}

// Owners alone look for the gradient; the others go straight to the collective. With offload it is the master gradient, whatever is in it.
void ZeroStage1And2::set_whole_gradient(const Event& event, ProgramWriter& w) {
  const std::uint32_t p = event.parameter;
  Slice held;
  const OwnedPart part = owned(p);
  if (part.numel > 0 && offload_) held = master_gradient_[part.group].part(part.partition_offset, part.numel);
  if (part.numel > 0 && !offload_) {
    if (averaged_state_ != Averaged::set) throw FrameworkError{"ValueError", "Gradients are only available immediately after backward and before engine step"};
    for (std::size_t i = 0; i < averaged_.size(); ++i)
      if (weights_.parts()[i].parameter == p && averaged_[i].defined()) held = averaged_[i].slice;
    // Before DeepSpeed#545 a missing gradient had no place in the list, which is looked up by the parameter's number. No release has both.
    if (held.numel == 0) throw FrameworkError{"IndexError", "list index out of range"};
  }
  Tensor full = times_factor(event, w, held, part.parameter_offset);
  if (part.numel > 0) {
    const Slice own = full.slice.part(part.parameter_offset, part.numel);
    w.copy_over_the_bus(held, own, false);
    if (offload_ && behaviour().bf16_overflow_test == Bf16OverflowTest::configured) w.check_finite(overflow_flag_, full.slice);
    if (offload_ && has_recorded_norm_refreshed(event)) {
      w.fill(recorded_norms_.part(p, 1), 0.0);
      w.squared_norm(recorded_norms_.part(p, 1), own);
    }
  }
  tensors_.drop(w, full);
}

// param.grad stays until the next backward zeroes it, so that what is set goes there, where no step looks. Without one the owners find
// the whole gradient in their own copy of the accumulator. From 0.19.8 on each owner reads there what it owns, also where there is a param.grad.
void Bf16Optimizer::set_whole_gradient(const Event& event, ProgramWriter& w) {
  const std::uint32_t p = event.parameter;
  if (sets_accumulator()) return w.multiply(high_precision(p), event.factor);
  const OwnedPart part = weights_.of(p).owned(p);
  const Slice whole = part.numel > 0 ? high_precision(p) : Slice{};
  const bool fragment = reads_fragments() && part.numel > 0;
  Tensor full = times_factor(event, w, fragment ? whole.part(part.parameter_offset, part.numel) : whole, fragment ? part.parameter_offset : 0);
  if (reads_fragments() && grad_[p].defined()) {
    w.copy(grad_[p].slice, full.slice);
    return tensors_.drop(w, full);
  }
  if (part.numel > 0 && part.numel < numel(p))
    throw FrameworkError{"RuntimeError", "shape '[" + std::to_string(numel(p)) + "]' is invalid for input of size " + std::to_string(part.numel)};
  if (part.numel > 0) w.copy(high_precision(p), full.slice);
  tensors_.drop(w, full);
}

Slice ZeroStage3::settable_partition(std::uint32_t p) const {
  for (const SubGroup& group : groups_)
    if (offload_ && contains(group.parameters, p)) return in_group(group, group.master_gradient, p);
  return partition_of(p);
}

void ZeroStage3::set_partition(const Event& event, ProgramWriter& w, Slice value) {
  const std::uint32_t p = event.parameter;
  w.copy_over_the_bus(settable_partition(p), value, false);
  if (!offload_) return;
  if (!has_recorded_norm_refreshed(event)) return;
  w.fill(recorded_norms_.part(p, 1), 0.0);
  w.squared_norm(recorded_norms_.part(p, 1), value);
  norm_recorded_[p] = true;
}

// All-gathered with the padding of the last ranks, set without it: a rank whose partition has padding finds the value too short.
void ZeroStage3::set_whole_gradient(const Event& event, ProgramWriter& w) {
  const std::uint32_t p = event.parameter, q = shard(p).size;
  {
    OnStream reduction(w, reduction_stream());
    w.host_waits();
  }
  Tensor gathered = tensors_.allocate(w, "reduce_buffer", Dtype::float32, std::uint64_t{q} * world());
  const Slice own = gathered.slice.part(rank() * q, q);
  w.copy_over_the_bus(own, settable_partition(p), false);
  w.collective({.kind = CollectiveKind::all_gather, .purpose = Purpose::user, .input = own, .output = gathered.slice});
  w.multiply(gathered.slice, event.factor);
  if (std::uint64_t{q} * (rank() + 1) > numel(p))
    throw FrameworkError{"RuntimeError", "start (" + std::to_string(q * rank()) + ") + length (" + std::to_string(q) + ") exceeds dimension size (" +
                                             std::to_string(numel(p)) + ")"};
  set_partition(event, w, own);
  tensors_.drop(w, gathered);
}

void ZeroStage3::set_own_partition(const Event& event, ProgramWriter& w) {
  {
    OnStream reduction(w, reduction_stream());
    w.host_waits();
  }
  Tensor value = tensors_.allocate(w, "fp32_grad", Dtype::float32, shard(event.parameter).size);
  w.copy_over_the_bus(value.slice, settable_partition(event.parameter), false);
  w.multiply(value.slice, event.factor);
  set_partition(event, w, value.slice);
  tensors_.drop(w, value);
}

}  // namespace gradledger
