#include "sim/frameworks/deepspeed/engine/keeping/muon_momentum.h"

#include <string>
#include <utility>

namespace gradledger {

void MuonMomentum::make(ProgramWriter& w, const KeepingContext& c, std::size_t g) {
  std::uint64_t total = 0;
  for (std::size_t i = c.weights[g].first_part(); i < c.weights[g].end_of_parts(); ++i) total += c.numel(c.weights.parts()[i].parameter);
  const auto buffer = [&](const char* name) {
    const BufferId b = w.declare(name + ("[" + std::to_string(g) + "]"), c.acc_dtype(), total);
    w.allocate(b);
    w.fill(w.whole(b), 0.0);
    return w.whole(b);
  };
  momentum_[g] = buffer("momentum_buffer");
  if (keeps_back(c)) staged_[g] = buffer("momentum_buffer, staged");
}

// Before DeepSpeed 0.19.7 into the momentum itself, whatever becomes of the step.
void MuonMomentum::take_in(ProgramWriter& w, const KeepingContext& c, const std::vector<Tensor>& gradients) {
  const double divisor = momentum_keeps_scale(c.behaviour) ? 1.0 : c.loss_scale;
  taken_scale_ = c.loss_scale;
  pending_ = keeps_back(c);
  (pending_ ? staged_scale_ : momentum_scale_) = c.loss_scale / divisor;
  for (std::size_t g = 0; g < c.weights.size(); ++g) {
    if (c.weights[g].parts().empty()) continue;
    if (momentum_[g].buffer == no_index) make(w, c, g);
    if (pending_) w.copy(staged_[g], momentum_[g]);
    const Slice momentum = pending_ ? staged_[g] : momentum_[g];
    std::uint64_t at = 0;
    for (std::size_t i = c.weights[g].first_part(); i < c.weights[g].end_of_parts(); ++i) {
      const std::uint64_t numel = c.numel(c.weights.parts()[i].parameter);
      // In 0.19.7 each matrix began with the momentum as it was committed: only the last one of a partition advanced.
      if (at > 0 && c.behaviour.muon_staging == MuonStaging::by_matrix) w.copy(staged_[g], momentum_[g]);
      take_into_momentum(w, c.tensors, momentum.part(at, numel), gradients[i].slice, c.scenario.engine.optimizer.momentum, divisor);
      c.tensors.share(w, taken_[i], gradients[i]);
      at += numel;
    }
  }
}

void MuonMomentum::commit(ProgramWriter& w) {
  if (!pending_) return;
  pending_ = false;
  momentum_scale_ = staged_scale_;
  for (std::size_t g = 0; g < momentum_.size(); ++g)
    if (staged_[g].buffer != no_index) w.copy(momentum_[g], staged_[g]);
}

void MuonMomentum::let_go(ProgramWriter& w, TensorTable& tensors) {
  pending_ = false;
  for (Tensor& gradient : taken_) tensors.clear(w, gradient);
}

std::vector<ViewPiece> MuonMomentum::matrices(const KeepingContext& c, std::size_t g, Slice flat) const {
  std::vector<ViewPiece> pieces;
  std::uint64_t at = 0;
  for (std::size_t i = c.weights[g].first_part(); i < c.weights[g].end_of_parts(); ++i) {
    const std::uint32_t p = c.weights.parts()[i].parameter;
    pieces.push_back({flat.part(at, c.numel(p)), static_cast<std::int32_t>(p), 0});
    at += c.numel(p);
  }
  return pieces;
}

void MuonMomentum::observe_taken(ProgramWriter& w, const KeepingContext& c, std::size_t g) const {
  std::vector<ViewPiece> pieces;
  for (std::size_t i = c.weights[g].first_part(); i < c.weights[g].end_of_parts(); ++i)
    if (taken_[i].defined()) pieces.push_back({taken_[i].slice, static_cast<std::int32_t>(c.weights.parts()[i].parameter), 0});
  w.observe(w.view("muon_update[" + std::to_string(g) + "].grad", std::move(pieces)), Role::applied_gradient, taken_scale_, false);
}

void MuonMomentum::observe(ProgramWriter& w, const KeepingContext& c) const {
  for (std::size_t g = 0; g < momentum_.size(); ++g)
    if (momentum_[g].buffer != no_index) w.observe(w.view("momentum_buffer[" + std::to_string(g) + "]", matrices(c, g, momentum_[g])), Role::first_moment, momentum_scale_, true);
}

void MuonMomentum::initialise(ProgramWriter& w, const KeepingContext& c) {
  if (!has_item(c.scenario.script, ScriptKind::restore)) return;
  for (std::size_t g = 0; g < momentum_.size(); ++g)
    if (!c.weights[g].parts().empty()) make(w, c, g);
}

void MuonMomentum::fold(StateFold& f) const {
  f.tensors(taken_);
  f.slices(momentum_);
  f.flag(pending_);
}

}  // namespace gradledger
