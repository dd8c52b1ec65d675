// ZeRO stages 1 and 2: what a snapshot shows, and in which role.
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

}  // namespace gradledger
