#include "sim/frameworks/deepspeed/engine/keeping/fp32_partition.h"

namespace gradledger {

// ---- the sums -------------------------------------------------------------------------------------------------------------------------

Slice Fp32Sums::partition_of(ProgramWriter& w, const KeepingContext& c, std::uint32_t p) {
  const OwnedPart part = c.owned(p);
  make_partition(w, c, part.group);
  return partition_sum_[part.group].slice.part(part.partition_offset, part.numel);
}

void Fp32Sums::make_partition(ProgramWriter& w, const KeepingContext& c, std::size_t g) {
  if (partition_sum_[g].defined()) return;
  partition_known_[g] = true;
  const std::uint64_t size = c.weights[g].layout().partition();
  c.tensors.give(w, partition_sum_[g], c.tensors.allocate(w, "averaged_gradients", c.acc_dtype(), size));
  w.fill(partition_sum_[g].slice, 0.0);
  std::uint64_t filled = 0;
  for (std::size_t i = c.weights[g].first_part(); i < c.weights[g].end_of_parts(); ++i) {
    const OwnedPart& part = c.weights.parts()[i];
    c.tensors.share(w, averaged_.parts[i], partition_sum_[g].part(part.partition_offset, part.numel));
    filled = part.partition_offset + part.numel;
  }
  if (filled < size) c.tensors.share(w, averaged_.padding[g], partition_sum_[g].part(filled, size - filled));
  averaged_.state = AveragedGradients::State::set;
}

void Fp32Sums::make_partitions(ProgramWriter& w, const KeepingContext& c) {
  for (std::size_t g = 0; g < c.weights.size(); ++g) make_partition(w, c, g);
}

void Fp32Sums::drop_partitions(ProgramWriter& w, const KeepingContext& c, bool skipped) {
  averaged_.set_to_none(w, c.tensors);
  for (Tensor& sum : partition_sum_) c.tensors.clear(w, sum);
  if (!skipped) partition_known_.assign(partition_known_.size(), true);
}

void Fp32Sums::require() const {
  for (std::size_t g = 0; g < partition_sum_.size(); ++g) {
    if (partition_sum_[g].defined()) continue;
    if (!partition_known_[g]) throw FrameworkError{"KeyError", std::to_string(g)};
    throw FrameworkError{"TypeError", "'NoneType' object is not iterable"};
  }
}

void Fp32Sums::observe(ProgramWriter& w, const KeepingContext& c, double scale) const {
  for (std::size_t g = 0; g < partition_sum_.size(); ++g)
    if (partition_sum_[g].defined()) averaged_.observe(w, c, g, scale);
}

void Fp32Sums::fold(StateFold& f) const {
  averaged_.fold(f);
  f.tensors(partition_sum_);
  f.flags(partition_known_);
}

// ---- on the device: the step takes the sums ----------------------------------------------------------------------------------------------

// The reduction has added the gradient to the partition.
void DevicePartition::keep(ProgramWriter& w, const KeepingContext& c, std::uint32_t p) {
  if (c.uses_grad_accum) c.tensors.clear(w, c.grad_accum[p]);
}

void DevicePartition::end_of_reductions(ProgramWriter& w, const KeepingContext& c) {
  if (c.boundary) sums_.make_partitions(w, c);
}

Slice DevicePartition::step_gradient(ProgramWriter& w, const KeepingContext& c, std::size_t group, Tensor& flat) {
  c.tensors.share(w, flat, sums_[group]);
  return flat.slice;
}

// ---- with offload: the step takes the master gradient ------------------------------------------------------------------------------------

// The reduction has added the gradient to the partition. A boundary takes what it holds by then on to the master gradient.
void OffloadedPartition::keep(ProgramWriter& w, const KeepingContext& c, std::uint32_t p) {
  holds_window_[p] = true;
  if (!c.boundary) return;
  const Slice own = sum_of(w, c, p);
  to_master_gradient(w, c, p, own, own);
  c.tensors.clear(w, c.gradient_attribute(p));
}

// live-33: a skipped step forgets norms and flag alone.
void OffloadedPartition::drop(ProgramWriter& w, const KeepingContext& c, bool skipped) {
  if (!skipped || c.behaviour.fp32_partition_when_skipped == Fp32PartitionWhenSkipped::dropped) sums_.drop_partitions(w, c, skipped);
  KeptOnHost::drop(w, c, skipped);
}

void OffloadedPartition::observe(ProgramWriter& w, const KeepingContext& c, double scale) const {
  sums_.observe(w, c, scale);
  KeptOnHost::observe(w, c, scale);
}

void OffloadedPartition::fold(StateFold& f) const {
  sums_.fold(f);
  KeptOnHost::fold(f);
}

}  // namespace gradledger
