#include "sim/frameworks/deepspeed/engine/keeping/kept_on_host.h"

#include <algorithm>

namespace gradledger {

void KeptOnHost::initialise(ProgramWriter& w, const KeepingContext& c) {
  const BufferId norms = w.declare("norm_for_param_grads", Dtype::float64, c.scenario.parameters.size());
  w.allocate(norms);
  recorded_norms_ = w.whole(norms);
  for (const FlatWeights& group : c.weights) {
    const BufferId master = w.declare(group.master_name() + ".grad", Dtype::float32, group.layout().partition(), MemorySpace::host);
    w.allocate(master);
    master_gradient_.push_back(w.whole(master));
    w.fill(master_gradient_.back(), 0.0);
  }
}

// Of the parameters that this window stored.
void KeptOnHost::finalise(ProgramWriter& w, const KeepingContext& c) {
  for (const OwnedPart& part : c.weights.parts())
    if (holds_window_[part.parameter]) finalise_parameter(w, c, part.parameter);
}

void KeptOnHost::to_master_gradient(ProgramWriter& w, const KeepingContext& c, std::uint32_t p, Slice gradient, Slice own) {
  const OwnedPart part = c.owned(p);
  record_norm(w, p, own);
  norm_recorded_[p] = true;
  w.check_finite(c.overflow_flag, gradient);
  w.copy_over_the_bus(master_gradient_[part.group].part(part.partition_offset, part.numel), own, c.pinned);
}

void KeptOnHost::record_norm(ProgramWriter& w, std::uint32_t p, Slice own) const {
  w.fill(recorded_norms_.part(p, 1), 0.0);
  w.squared_norm(recorded_norms_.part(p, 1), own);
}

// Of the parameters whose norm was recorded.
void KeptOnHost::add_squares(ProgramWriter& w, const KeepingContext& c, std::size_t group, Slice squared) const {
  for (const OwnedPart& part : c.weights[group].parts()) {
    if (!c.counts_in_norm(part.parameter)) continue;
    if (norm_recorded_[part.parameter]) w.accumulate(squared, recorded_norms_.part(part.parameter, 1));
    else if (!c.config.zero.ignore_unused_parameters) throw FrameworkError{"AssertionError", "your module has parameters that were not used in producing loss"};
    else if (c.behaviour.unused_norm == UnusedNorm::required) throw FrameworkError{"KeyError", std::to_string(part.parameter)};
  }
}

Slice KeptOnHost::step_gradient(ProgramWriter& w, const KeepingContext&, std::size_t group, Tensor&) {
  w.host_waits();
  return master_gradient_[group];
}

// The master gradient stays, and with it what it holds.
void KeptOnHost::drop(ProgramWriter& w, const KeepingContext& c, bool) {
  std::fill(norm_recorded_.begin(), norm_recorded_.end(), false);
  std::fill(holds_window_.begin(), holds_window_.end(), false);
  w.fill(c.overflow_flag, 0);
  if (c.behaviour.stale_clear != StaleClear::zero) return;
  OnStream by_the_host(w, Stream::host);
  for (const Slice gradient : master_gradient_) w.fill(gradient, 0.0);
}

// Whatever is in it.
Slice KeptOnHost::user_gradient(const KeepingContext& c, std::size_t group, std::size_t place) const {
  const std::vector<OwnedPart>& parts = c.weights[group].parts();
  if (place >= parts.size()) throw FrameworkError{"IndexError", "list index out of range"};
  return master_gradient_[group].part(parts[place].partition_offset, parts[place].numel);
}

void KeptOnHost::user_has_set(ProgramWriter& w, const KeepingContext& c, std::uint32_t p, Slice full, Slice own, bool refreshes_norm) const {
  if (c.behaviour.bf16_overflow_test == Bf16OverflowTest::configured) w.check_finite(c.overflow_flag, full);
  if (refreshes_norm) record_norm(w, p, own);
}

void KeptOnHost::observe(ProgramWriter& w, const KeepingContext& c, double scale) const {
  for (std::size_t g = 0; g < master_gradient_.size(); ++g)
    w.observe(w.view(c.weights[g].master_name() + ".grad", c.weights[g].partition_pieces(master_gradient_[g])), Role::master_gradient, scale, true);
}

void KeptOnHost::fold(StateFold& f) const {
  f.flags(holds_window_);
  f.flags(norm_recorded_);
  f.slices(master_gradient_);
}

}  // namespace gradledger
