// ZeRO stage 3 with Muon: which gradients its momentum takes in, and when.
#include "sim/frameworks/deepspeed/engine/muon.h"
#include "sim/frameworks/deepspeed/engine/zero_stage3.h"

namespace gradledger {

// A reduction has just averaged it. Until 0.19.8 this was the moment, so that a window of n micro-batches advanced the momentum n times, and a
// step that was skipped left it advanced.
void ZeroStage3::take_into_momentum_of(ProgramWriter& w, std::uint32_t p, Slice reduced, double scale) {
  if (!uses_muon(scenario()) || behaviour().muon_takes_in != MuonTakesIn::each_reduction) return;
  const double divisor = momentum_keeps_scale(behaviour()) ? 1.0 : scale;
  take_into_momentum(w, tensors_, momentum_.part(offset_[p], reduced.numel), reduced, scenario().engine.optimizer.momentum, divisor);
  momentum_scale_ = scale / divisor;
}

// Once in a step that updates: the window's gradient, with the loss scale that it came with.
void ZeroStage3::apply_muon(ProgramWriter& w) {
  if (!uses_muon(scenario()) || behaviour().muon_takes_in != MuonTakesIn::each_step) return;
  const double scale = scaler_.before_update(), divisor = momentum_keeps_scale(behaviour()) ? 1.0 : scale;
  for (std::uint32_t p : learned())
    if (const std::uint64_t real = shard(p).real; real > 0)
      take_into_momentum(w, tensors_, momentum_.part(offset_[p], real), partition_of(p).part(0, real), scenario().engine.optimizer.momentum, divisor);
  momentum_scale_ = scale / divisor;
}

void ZeroStage3::observe_momentum(ProgramWriter& w) {
  if (!uses_muon(scenario())) return;
  for (std::size_t g = 0; g < groups_.size(); ++g)
    w.observe(w.view("momentum_buffer[" + std::to_string(g) + "]", group_pieces(groups_[g], momentum_.part(groups_[g].offset, groups_[g].size))), Role::first_moment,
              momentum_scale_, true);
}

}  // namespace gradledger
