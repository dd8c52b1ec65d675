#include "sim/frameworks/deepspeed/engine/keeping/kept_on_device.h"

#include <utility>

namespace gradledger {

void AveragedGradients::observe(ProgramWriter& w, const KeepingContext& c, std::size_t group, double scale) const {
  std::vector<ViewPiece> pieces;
  for (std::size_t i = c.weights[group].first_part(); i < c.weights[group].end_of_parts(); ++i) {
    const OwnedPart& part = c.weights.parts()[i];
    if (parts[i].defined()) pieces.push_back({parts[i].slice, static_cast<std::int32_t>(part.parameter), part.parameter_offset});
  }
  if (padding[group].defined()) pieces.push_back({padding[group].slice, -1, 0});
  w.observe(w.view("averaged_gradients[" + std::to_string(group) + "]", std::move(pieces)), Role::reduced_accumulator, scale, true);
}

void AveragedGradients::set_to_none(ProgramWriter& w, TensorTable& tensors) {
  for (Tensor& gradient : parts) tensors.clear(w, gradient);
  for (Tensor& gradient : padding) tensors.clear(w, gradient);
  state = State::none;
}

void AveragedGradients::fold(StateFold& f) const {
  f.number(static_cast<std::uint64_t>(state));
  f.tensors(parts);
  f.tensors(padding);
}

void KeptOnDevice::check_finite(ProgramWriter& w, const KeepingContext& c) const {
  for (const std::uint32_t p : c.learned) c.require_elements(p);
  w.fill(c.overflow_flag, 0);
  for (const Tensor& gradient : averaged().parts)
    if (gradient.defined()) w.check_finite(c.overflow_flag, gradient.slice);
}

void KeptOnDevice::add_squares(ProgramWriter& w, const KeepingContext& c, std::size_t group, Slice squared) const {
  for (std::size_t i = c.weights[group].first_part(); i < c.weights[group].end_of_parts(); ++i)
    if (averaged().parts[i].defined() && c.counts_in_norm(c.weights.parts()[i].parameter)) w.squared_norm(squared, averaged().parts[i].slice);
}

void KeptOnDevice::begin_step(ProgramWriter& w, const KeepingContext& c) {
  for (Tensor& grad : c.grad) c.tensors.clear(w, grad);
}

// The padding is listed behind the parts.
Slice KeptOnDevice::user_gradient(const KeepingContext& c, std::size_t group, std::size_t place) const {
  if (averaged().state != AveragedGradients::State::set) throw FrameworkError{"ValueError", "Gradients are only available immediately after backward and before engine step"};
  const std::size_t parts = c.weights[group].parts().size();
  if (place < parts && averaged().parts[c.weights[group].first_part() + place].defined()) return averaged().parts[c.weights[group].first_part() + place].slice;
  if (place == parts && averaged().padding[group].defined()) return averaged().padding[group].slice;
  // Before DeepSpeed#545 a missing gradient had no place in the list, which is looked up by the parameter's number. No release has both.
  throw FrameworkError{"IndexError", "list index out of range"};
}

}  // namespace gradledger
