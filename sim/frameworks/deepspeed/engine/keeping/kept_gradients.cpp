#include "sim/frameworks/deepspeed/engine/keeping/kept_gradients.h"

namespace gradledger {

void KeepingContext::require_gradient(std::uint32_t p) const {
  if (!gradient_attribute(p).defined()) throw FrameworkError{"AttributeError", "'NoneType' object has no attribute 'view'"};
}

void KeepingContext::require_elements(std::uint32_t p) const {
  if (looks_up_empty(p)) throw FrameworkError{"RuntimeError", "max(): Expected reduction dim to be specified for input.numel() == 0."};
}

Tensor KeepingContext::gradient_for_reduction(ProgramWriter& w, std::uint32_t p) const {
  Tensor gradient;
  if (!reduces_copy) {
    tensors.share(w, gradient, gradient_attribute(p));
    return gradient;
  }
  gradient = tensors.allocate(w, parameter_name(p) + ".grad_accum.to(model)", model_dtype(), numel(p));
  w.copy(gradient.slice, grad_accum[p].slice);
  return gradient;
}

std::vector<ViewPiece> KeepingContext::owned_piece(std::uint32_t p, Slice whole) const {
  const OwnedPart part = owned(p);
  std::vector<ViewPiece> pieces;
  if (part.parameter_offset > 0) pieces.push_back({whole.part(0, part.parameter_offset), -1, 0});
  pieces.push_back({whole.part(part.parameter_offset, part.numel), static_cast<std::int32_t>(p), part.parameter_offset});
  if (const std::uint64_t end = part.parameter_offset + part.numel; end < whole.numel) pieces.push_back({whole.part(end, whole.numel - end), -1, 0});
  return pieces;
}

}  // namespace gradledger
