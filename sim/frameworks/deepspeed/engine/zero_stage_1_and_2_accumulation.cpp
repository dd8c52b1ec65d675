// ZeRO stages 1 and 2: where a reduced gradient is kept, on the device and on the host.
#include "sim/frameworks/deepspeed/engine/zero_stage_1_and_2.h"

#include <algorithm>

namespace gradledger {

// copy_grads_in_partition: an owned parameter's full gradient leaves the bucket, which will be overwritten.
void ZeroStage1And2::keep(ProgramWriter& w, std::uint32_t p) {
  if (to_partition_) return keep_of_partition(w, p);
  if (offload_) return keep_on_host(w, p);
  require_gradient(p);
  if (!grads_in_partition_.defined()) {
    std::uint64_t total = 0;
    for (const OwnedPart& part : weights_.parts()) total += numel(part.parameter);
    grads_in_partition_ = tensors_.allocate(w, "grads_in_partition", model_dtype_, total);
    grads_in_partition_offset_ = 0;
  }
  // An epilogue that raised before left its gradients there.
  if (grads_in_partition_offset_ + numel(p) > grads_in_partition_.numel())
    throw FrameworkError{"RuntimeError", "start (" + std::to_string(grads_in_partition_offset_) + ") + length (" + std::to_string(numel(p)) +
                                             ") exceeds dimension size (" + std::to_string(grads_in_partition_.numel()) + ")"};
  Tensor reduced = gradient_for_reduction(w, p);
  const Tensor kept = grads_in_partition_.part(grads_in_partition_offset_, numel(p));
  w.copy(kept.slice, reduced.slice);
  grads_in_partition_offset_ += numel(p);
  tensors_.drop(w, reduced);
  if (!uses_grad_accum_) tensors_.share(w, grad_[p], kept);
}

// The reduction has added the gradient to the partition. With offload a boundary takes what it holds by then on to the master gradient.
void ZeroStage1And2::keep_of_partition(ProgramWriter& w, std::uint32_t p) {
  if (!offload_) {
    if (uses_grad_accum_) tensors_.clear(w, grad_accum_[p]);
    return;
  }
  host_holds_window_[p] = true;
  if (!boundary_mirror()) return;
  const Slice own = partition_of(w, p);
  to_master_gradient(w, p, own, own);
  tensors_.clear(w, gradient_attribute(p));
}

// The rank's part of a parameter in the fp32 partition, which the first that asks for it makes.
Slice ZeroStage1And2::partition_of(ProgramWriter& w, std::uint32_t p) {
  const OwnedPart part = owned(p);
  make_partition(w, part.group);
  return partition_sum_[part.group].slice.part(part.partition_offset, part.numel);
}

void ZeroStage1And2::make_partition(ProgramWriter& w, std::size_t g) {
  if (partition_sum_[g].defined()) return;
  partition_known_[g] = true;
  const std::uint32_t size = weights_[g].layout().partition();
  tensors_.give(w, partition_sum_[g], tensors_.allocate(w, "averaged_gradients", acc_dtype_, size));
  w.fill(partition_sum_[g].slice, 0.0);
  std::uint32_t filled = 0;
  for (std::size_t i = weights_[g].first_part(); i < weights_[g].end_of_parts(); ++i) {
    const OwnedPart& part = weights_.parts()[i];
    tensors_.share(w, averaged_[i], partition_sum_[g].part(part.partition_offset, part.numel));
    filled = part.partition_offset + part.numel;
  }
  if (filled < size) tensors_.share(w, averaged_padding_[g], partition_sum_[g].part(filled, size - filled));
  averaged_state_ = Averaged::set;
}

void ZeroStage1And2::make_partitions(ProgramWriter& w) {
  for (std::size_t g = 0; g < weights_.size(); ++g) make_partition(w, g);
}

void ZeroStage1And2::drop_partitions(ProgramWriter& w, bool skipped) {
  if (!to_partition_) return;
  for (Tensor& gradient : averaged_) tensors_.clear(w, gradient);
  for (Tensor& padding : averaged_padding_) tensors_.clear(w, padding);
  for (Tensor& sum : partition_sum_) tensors_.clear(w, sum);
  if (!skipped) partition_known_.assign(partition_known_.size(), true);
  averaged_state_ = Averaged::none;
}

// A zero_grad since the hook that filled the bucket: param.grad is None.
void ZeroStage1And2::require_gradient(std::uint32_t p) {
  if (!gradient_attribute(p).defined()) throw FrameworkError{"AttributeError", "'NoneType' object has no attribute 'view'"};
}

void ZeroStage1And2::keep_on_host(ProgramWriter& w, std::uint32_t p) {
  const bool at_boundary = boundary_mirror();
  // DeepSpeed#7981: before it, the host accumulator was used only with gradient_accumulation_steps > 1.
  const bool uses_host_accumulator =
      behaviour().offload_keep == OffloadKeep::gate_id_or_not_boundary ? micro_step_id_ > 0 || !at_boundary : config().gradient_accumulation_steps > 1;
  if (uses_host_accumulator || at_boundary) require_gradient(p);
  if (uses_host_accumulator) accumulate_on_host(w, p);
  if (!at_boundary) return;
  const OwnedPart part = owned(p);
  const Slice gradient = gradient_attribute(p).slice;
  to_master_gradient(w, p, gradient, gradient.part(part.parameter_offset, part.numel));
  tensors_.clear(w, gradient_attribute(p));
}

// `gradient` is looked at for an overflow, `own` is the rank's part of it.
void ZeroStage1And2::to_master_gradient(ProgramWriter& w, std::uint32_t p, Slice gradient, Slice own) {
  const OwnedPart part = owned(p);
  w.fill(recorded_norms_.part(p, 1), 0.0);
  w.squared_norm(recorded_norms_.part(p, 1), own);
  norm_recorded_[p] = true;
  w.check_finite(overflow_flag_, gradient);
  w.copy_over_the_bus(master_gradient_[part.group].part(part.partition_offset, part.numel), own, pinned());
}

void ZeroStage1And2::accumulate_on_host(ProgramWriter& w, std::uint32_t p) {
  Tensor& host = accumulated_on_host_[p];
  if (!host.defined()) {
    OnStream by_the_host(w, Stream::host);
    host = tensors_.allocate(w, "accumulated_grads_in_cpu[" + parameter_name(p) + "]", model_dtype_, numel(p), MemorySpace::host);
    w.fill(host.slice, 0.0);
  }
  const Slice gradient = gradient_attribute(p).slice;
  const bool add = micro_step_id_ > 0;
  if (add) {
    Tensor on_device = tensors_.allocate(w, "temp_grad_buffer_for_gpu_offload", model_dtype_, numel(p));
    w.copy_over_the_bus(on_device.slice, host.slice, pinned());
    w.accumulate(gradient, on_device.slice);
    tensors_.drop(w, on_device);
  }
  const OffloadKeep rule = behaviour().offload_keep;
  // DeepSpeed#6550: add, else store: whatever a later backward adds is never stored again.
  const bool store = rule == OffloadKeep::counter_only ? !boundary_mirror() : rule == OffloadKeep::add_else_store ? !add : true;
  if (store) w.copy_over_the_bus(host.slice, gradient, pinned());
  // What a boundary does not store went to the master gradient, and the host keeps a part that nobody reads.
  host_holds_window_[p] = store || (host_holds_window_[p] && !boundary_mirror());
}

// The three historical accumulators. What differs is which list is tested for emptiness, and which is added to.
void ZeroStage1And2::accumulate_owned(ProgramWriter& w) {
  all_grad_tensors_known_ = true;
  std::vector<Tensor> fresh;
  for (const OwnedPart& part : weights_.parts()) {
    Tensor gradient;
    if (gradient_attribute(part.parameter).defined()) {
      tensors_.share(w, gradient, gradient_attribute(part.parameter));
      if (partition_gradients_ && behaviour().stage2_acc_dtype == Stage2AccDtype::acc && acc_dtype_ != model_dtype_) {
        const Tensor cast = tensors_.allocate(w, "all_grad_tensors[" + parameter_name(part.parameter) + "]", acc_dtype_, numel(part.parameter));
        w.copy(cast.slice, gradient.slice);
        tensors_.give(w, gradient, cast);
      }
    } else if (behaviour().missing_gradient == MissingGradient::zeros) {  // DeepSpeed#545: before it the parameter was skipped, and what follows it moved up
      gradient = tensors_.allocate(w, "zeros[" + parameter_name(part.parameter) + "]", acc_dtype_, numel(part.parameter));
      w.fill(gradient.slice, 0.0);
    }
    fresh.push_back(gradient);
  }
  const auto add_into = [&](std::vector<Tensor>& list) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].defined() != fresh[i].defined())
        throw FrameworkError{"RuntimeError", "The sizes of the accumulated and of the new gradients do not fit each other"};
      if (!fresh[i].defined()) continue;
      w.accumulate(list[i].slice, fresh[i].slice);
      tensors_.drop(w, fresh[i]);
    }
  };
  if (behaviour().stage12_accumulator == Stage12Accumulator::averaged_gradients) {
    if (averaged_state_ != Averaged::set) {
      all_grad_tensors_ = std::move(fresh);
      take_averaged_gradients(w);
    } else {
      for (std::size_t i = 0; i < averaged_.size(); ++i) {
        const OwnedPart& part = weights_.parts()[i];
        if (averaged_[i].defined() != fresh[i].defined())
          throw FrameworkError{"RuntimeError", "The sizes of the accumulated and of the new gradients do not fit each other"};
        if (!fresh[i].defined()) continue;
        w.accumulate(averaged_[i].slice, fresh[i].slice.part(part.parameter_offset, part.numel));
        tensors_.drop(w, fresh[i]);
      }
    }
    return;
  }
  // DeepSpeed#7509 split the accumulator off averaged_gradients and went on testing averaged_gradients for emptiness; DeepSpeed#7665 tests the new list.
  const bool starts = behaviour().stage12_accumulator == Stage12Accumulator::split_tests_av ? averaged_state_ != Averaged::set : !all_grad_tensors_.has_value();
  if (starts) {
    if (all_grad_tensors_)
      for (Tensor& gradient : *all_grad_tensors_) tensors_.drop(w, gradient);
    all_grad_tensors_ = std::move(fresh);
  } else {
    if (!all_grad_tensors_) throw FrameworkError{"TypeError", "'NoneType' object is not iterable"};
    add_into(*all_grad_tensors_);
  }
  if (boundary_mirror()) take_averaged_gradients(w);
}

// averaged_gradients := slices of all_grad_tensors (same storage), padded with zeros; all_grad_tensors := None.
void ZeroStage1And2::take_averaged_gradients(ProgramWriter& w) {
  for (std::size_t g = 0; g < weights_.size() && behaviour().owner_of_nothing == OwnerOfNothing::raises; ++g) {
    const auto begins_here = [&](std::uint32_t p) { return weights_.number_of(p) == g && (owns(p) || weights_[g].owns_place(p)); };
    if (std::none_of(learned().begin(), learned().end(), begins_here)) throw FrameworkError{"IndexError", "list index out of range"};
  }
  std::vector<std::uint32_t> filled(weights_.size());
  for (std::size_t i = 0; i < averaged_.size(); ++i) {
    const OwnedPart& part = weights_.parts()[i];
    if (!(*all_grad_tensors_)[i].defined()) continue;
    tensors_.share(w, averaged_[i], (*all_grad_tensors_)[i].part(part.parameter_offset, part.numel));
    tensors_.clear(w, (*all_grad_tensors_)[i]);
    filled[part.group] += part.numel;
  }
  for (std::size_t g = 0; g < weights_.size(); ++g) {
    const std::uint32_t padding = weights_[g].layout().partition() - filled[g];
    if (padding == 0) continue;
    tensors_.give(w, averaged_padding_[g], tensors_.allocate(w, "averaged_gradients.padding", acc_dtype_, padding));
    w.fill(averaged_padding_[g].slice, 0.0);
  }
  all_grad_tensors_.reset();
  averaged_state_ = Averaged::set;
}

}  // namespace gradledger
