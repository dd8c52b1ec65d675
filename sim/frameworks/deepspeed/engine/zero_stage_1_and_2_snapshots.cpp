// ZeRO stages 1 and 2 as others see them: snapshots with their roles, the gradient that users set, checkpoints, states.
#include "sim/frameworks/deepspeed/engine/zero_stage_1_and_2.h"

#include <string>
#include <utility>

namespace gradledger {

// A whole parameter, of which the rank answers for its own part alone.
std::vector<ViewPiece> ZeroStage1And2::owned_piece(std::uint32_t p, Slice whole) const {
  const OwnedPart part = owned(p);
  std::vector<ViewPiece> pieces;
  if (part.parameter_offset > 0) pieces.push_back({whole.part(0, part.parameter_offset), -1, 0});
  pieces.push_back({whole.part(part.parameter_offset, part.numel), static_cast<std::int32_t>(p), part.parameter_offset});
  if (const std::uint32_t end = part.parameter_offset + part.numel; end < whole.numel)
    pieces.push_back({whole.part(end, whole.numel - end), -1, 0});
  return pieces;
}

void ZeroStage1And2::observe_wrapper(ProgramWriter& w) {
  const double scale = scaler_.scale();
  // Where reduced values are kept they lie in it until the next forward.
  const bool holds_average = epilogue_ran_ && (to_partition_ || behaviour().stage1_attr_reduction == Stage1AttrReduction::kept);
  const Role accum_role = holds_average ? Role::scratch : Role::local_accumulator;
  for (std::uint32_t p : learned())
    if (grad_accum_[p].defined())
      w.observe(w.view(parameter_name(p) + ".grad_accum", whole_parameter(p, grad_accum_[p].slice)), accum_role, scale, true);
  if (all_grad_tensors_) {
    for (std::size_t i = 0; i < all_grad_tensors_->size(); ++i) {
      if (!(*all_grad_tensors_)[i].defined()) continue;
      const std::uint32_t p = weights_.parts()[i].parameter;
      w.observe(w.view("all_grad_tensors[" + std::to_string(weights_.parts()[i].group) + "][" + parameter_name(p) + "]", owned_piece(p, (*all_grad_tensors_)[i].slice)),
                Role::reduced_accumulator, scale, true);
    }
  }
  for (std::size_t g = 0; g < weights_.size() && averaged_state_ == Averaged::set; ++g)
    if (!to_partition_ || partition_sum_[g].defined()) observe_averaged(w, g);
  for (std::uint32_t p : learned())
    if (accumulated_on_host_[p].defined())
      w.observe(w.view("accumulated_grads_in_cpu[" + parameter_name(p) + "]", owned_piece(p, accumulated_on_host_[p].slice)),
                Role::reduced_accumulator, scale, true);
  for (std::size_t g = 0; g < master_gradient_.size(); ++g)
    w.observe(w.view(weights_[g].master_name() + ".grad", weights_[g].partition_pieces(master_gradient_[g])),
              Role::master_gradient, scale, true);
  if (stepped_) weights_.observe(w);
}

void ZeroStage1And2::observe_averaged(ProgramWriter& w, std::size_t group) {
  std::vector<ViewPiece> pieces;
  for (std::size_t i = weights_[group].first_part(); i < weights_[group].end_of_parts(); ++i) {
    const OwnedPart& part = weights_.parts()[i];
    if (averaged_[i].defined()) pieces.push_back({averaged_[i].slice, static_cast<std::int32_t>(part.parameter), part.parameter_offset});
  }
  if (const Tensor& padding = averaged_padding_[group]; padding.defined()) pieces.push_back({padding.slice, -1, 0});
  w.observe(w.view("averaged_gradients[" + std::to_string(group) + "]", std::move(pieces)), Role::reduced_accumulator,
            scaler_.scale(), true);
}

// ---- what users set -------------------------------------------------------------------------------------------------------------------

// Owners alone look for the gradient; the others go straight to the collective. With offload it is the master gradient, whatever is in it.
void ZeroStage1And2::set_whole_gradient(const events::SetGradient& event, ProgramWriter& w) {
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

// ---- checkpoints, and what searches tell states apart by -----------------------------------------------------------------------------

void ZeroStage1And2::load(const Engine& saved) {
  const auto& before = static_cast<const ZeroStage1And2&>(saved);
  scaler_ = before.scaler_;
  weights_.load(before.weights_);
}

void ZeroStage1And2::fold(StateFold& f) const {
  DeepSpeedEngine::fold(f);
  scaler_.fold(f);
  f.number(static_cast<std::uint64_t>(micro_step_id_));
  f.flags({ready_for_gradients_, had_buckets_, epilogue_ran_, bucket_.extra_large, all_grad_tensors_.has_value()});
  f.flags(already_reduced_);
  f.number(bucket_.elements);
  f.number(bucket_.index);
  f.number(bucket_.empty.size());
  for (const BucketEntry& entry : bucket_.entries) {
    f.number(entry.parameter);
    f.tensor(entry.gradient);
  }
  f.tensors(grad_accum_);
  f.tensor(grads_in_partition_);
  f.number(grads_in_partition_offset_);
  f.tensors(deferred_);
  if (all_grad_tensors_) f.tensors(*all_grad_tensors_);
  f.number(static_cast<std::uint64_t>(averaged_state_));
  f.tensors(averaged_);
  f.tensors(averaged_padding_);
  f.tensors(partition_sum_);
  f.flags(partition_known_);
  f.flag(all_grad_tensors_known_);
  f.tensors(accumulated_on_host_);
  f.flags(host_holds_window_);
  f.flags(norm_recorded_);
  f.slices(master_gradient_);
}

}  // namespace gradledger
