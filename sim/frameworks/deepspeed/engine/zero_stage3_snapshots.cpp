// ZeRO stage 3 as others see it: snapshots with their roles, the gradient that users set, checkpoints, states.
#include "sim/frameworks/deepspeed/engine/zero_stage3.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

namespace gradledger {

void ZeroStage3::add_shard_pieces(std::uint32_t p, Slice partition, std::vector<ViewPiece>& to) const {
  const ParameterShard own = shard(p);
  if (own.real > 0) to.push_back({partition.part(0, own.real), static_cast<std::int32_t>(p), own.offset});
  if (own.real < own.size) to.push_back({partition.part(own.real, own.size - own.real), -1, 0});
}

std::vector<ViewPiece> ZeroStage3::shard_pieces(std::uint32_t p, Slice partition) const {
  std::vector<ViewPiece> pieces;
  pieces.reserve(2);
  add_shard_pieces(p, partition, pieces);
  return pieces;
}

std::vector<ViewPiece> ZeroStage3::group_pieces(const SubGroup& group, Slice flat) const {
  std::vector<ViewPiece> pieces;
  pieces.reserve(group.parameters.size());
  for (std::uint32_t p : group.parameters) add_shard_pieces(p, in_group(group, flat, p), pieces);
  return pieces;
}

void ZeroStage3::observe_wrapper(ProgramWriter& w) {
  for (std::uint32_t p : learned()) {
    ViewId& view = accumulator_views_[p];
    if (view == no_index) view = w.view("grad_partition[" + parameter_name(p) + "]", shard_pieces(p, partition_of(p)));
    w.observe(view, Role::reduced_accumulator, scaler_.scale(), true);
  }
  for (std::size_t g = 0; g < groups_.size() && offload_; ++g)
    w.observe(w.view("fp32_partitioned_groups_flat[" + std::to_string(g) + "].grad", group_pieces(groups_[g], groups_[g].master_gradient)), Role::master_gradient, scaler_.scale(),
              true);
  if (!stepped_) return;
  for (std::uint32_t p : learned()) {
    ViewId& view = weight_views_[p];
    if (view == no_index) view = w.view("ds_tensor[" + parameter_name(p) + "]", shard_pieces(p, weights_[p]));
    w.observe(view, Role::parameter, 1.0, true);
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::vector<ViewPiece> pieces = group_pieces(groups_[g], groups_[g].master);
    w.observe(w.view("fp32_partitioned_groups_flat[" + std::to_string(g) + "]", pieces), Role::master_parameter, 1.0, true);
  }
  observe_momentum(w);
  for (std::size_t g = 0; g < optimizers_.size(); ++g) {
    std::vector<ViewPiece> in_moments;
    for (std::uint32_t p : optimizer_groups_[g].parameters) add_shard_pieces(p, {no_index, offset_[p] - group_offset_[g], shard(p).size}, in_moments);
    optimizers_[g].observe(w, in_moments);
  }
}

// ---- what users set -------------------------------------------------------------------------------------------------------------------

Slice ZeroStage3::settable_partition(std::uint32_t p) const {
  for (const SubGroup& group : groups_)
    if (offload_ && contains(group.parameters, p)) return in_group(group, group.master_gradient, p);
  return partition_of(p);
}

void ZeroStage3::set_partition(const events::SetGradient& event, ProgramWriter& w, Slice value) {
  const std::uint32_t p = event.parameter;
  w.copy_over_the_bus(settable_partition(p), value, false);
  if (!offload_) return;
  if (!has_recorded_norm_refreshed(event)) return;
  w.fill(recorded_norms_.part(p, 1), 0.0);
  w.squared_norm(recorded_norms_.part(p, 1), value);
  norm_recorded_[p] = true;
}

namespace {

// Tensor.narrow(), where what is asked for does not lie inside.
FrameworkError narrowed_too_far(std::uint64_t start, std::uint64_t length, std::uint64_t size) {
  if (start > size) return {"IndexError", fmt::format("start out of range (expected to be in range of [-{0}, {0}], but got {1})", size, start)};
  return {"RuntimeError", fmt::format("start ({}) + length ({}) exceeds dimension size ({})", start, length, size)};
}

}  // namespace

// All-gathered with the padding of the last ranks, set without it: a rank whose partition has padding finds the value too short.
void ZeroStage3::set_whole_gradient(const events::SetGradient& event, ProgramWriter& w) {
  const std::uint32_t p = event.parameter;
  const std::uint64_t q = shard(p).size;
  {
    OnStream reduction(w, reduction_stream());
    w.host_waits();
  }
  Tensor gathered = tensors_.allocate(w, "reduce_buffer", Dtype::float32, std::uint64_t{q} * world());
  const Slice own = gathered.slice.part(rank() * q, q);
  w.copy_over_the_bus(own, settable_partition(p), false);
  w.collective({.kind = CollectiveKind::all_gather, .purpose = Purpose::user, .communicator = reduces_in(), .input = own, .output = gathered.slice});
  w.multiply(gathered.slice, event.factor);
  if (q * (rank() + 1) > numel(p)) throw narrowed_too_far(q * rank(), q, numel(p));
  set_partition(event, w, own);
  tensors_.drop(w, gathered);
}

void ZeroStage3::set_own_partition(const events::SetGradient& event, ProgramWriter& w) {
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

// ---- checkpoints, and what searches tell states apart by -----------------------------------------------------------------------------

void ZeroStage3::load(const Engine& saved) {
  const auto& before = static_cast<const ZeroStage3&>(saved);
  scaler_ = before.scaler_;
  momentum_scale_ = before.momentum_scale_;
  for (std::size_t g = 0; g < optimizers_.size(); ++g) optimizers_[g].load(before.optimizers_[g]);
}

void ZeroStage3::fold(StateFold& f) const {
  DeepSpeedEngine::fold(f);
  scaler_.fold(f);
  f.number(micro_step_id_);
  f.flag(epilogue_ran_);
  f.number(std::min<std::uint64_t>(bucket_elements_, config().zero.reduce_bucket_size + 1));  // by how much a full one is over decides nothing
  for (const std::uint32_t p : bucket_) {
    f.number(p);
    f.slice(gradient_slice_[p]);
  }
  f.number(in_flight_.size());
  f.slice(partitions_);
  f.number(static_cast<std::uint64_t>(averaged_state_));
  f.flags(norm_recorded_);
  f.flags(stored_in_window_);
  for (const SubGroup& group : groups_) f.slice(group.master_gradient);
  if (fetches_) fetches_->fold(f);
}

}  // namespace gradledger
