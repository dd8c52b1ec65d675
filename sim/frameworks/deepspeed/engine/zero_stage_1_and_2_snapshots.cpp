// ZeRO stages 1 and 2 as others see them: snapshots with their roles, the gradient that users set, checkpoints, states.
#include "sim/frameworks/deepspeed/engine/zero_stage_1_and_2.h"

#include <algorithm>
#include <string>
#include <utility>

namespace gradledger {

void ZeroStage1And2::observe_wrapper(ProgramWriter& w) {
  const double scale = scaler_.scale();
  // Where reduced values are kept they lie in it until the next forward.
  const bool holds_average = epilogue_ran_ && (!reduces_copy_ || behaviour().stage1_attr_reduction == Stage1AttrReduction::kept);
  const Role accum_role = holds_average ? Role::scratch : Role::local_accumulator;
  for (std::uint32_t p : learned())
    if (grad_accum_[p].defined()) w.observe(w.view(parameter_name(p) + ".grad_accum", whole_parameter(p, grad_accum_[p].slice)), accum_role, scale, true);
  kept_->observe(w, keeping(), scale);
  if (!stepped_) return;
  weights_.observe(w);
  kept_->observe_state(w, keeping());
}

// ---- what users set -------------------------------------------------------------------------------------------------------------------

// Owners alone look for the gradient; the others go straight to the collective.
void ZeroStage1And2::set_whole_gradient(const events::SetGradient& event, ProgramWriter& w) {
  const std::uint32_t p = event.parameter;
  const Link link = out_of_reach_ ? Link{} : link_of(p);
  const Slice found = link.part.numel > 0 ? kept_->user_gradient(keeping(), weights_.number_of(p), link.place) : Slice{};
  Tensor full = times_factor_of_found(event, w, link.part, found);
  if (link.part.numel > 0) {
    const Slice own = set_from(link.part, found, full.slice);
    w.copy_over_the_bus(found, own, false);
    kept_->user_has_set(w, keeping(), p, full.slice, own, has_recorded_norm_refreshed(event));
  }
  tensors_.drop(w, full);
}

// live-38: the order that parameters were given in, where they are dealt in turn. What is found at the same place is of another parameter, as a rule.
ZeroStage1And2::Link ZeroStage1And2::link_of(std::uint32_t parameter) const {
  const FlatWeights& group = weights_.of(parameter);
  const auto as_given = [&] { return FlatPartition(scenario(), rank_groups()[weights_.number_of(parameter)].parameters, group.peers().size(), Dealing::in_order); };
  const bool elsewhere = config().zero.round_robin_gradients && behaviour().dealt_links == DealtLinks::as_given;
  const std::vector<OwnedPart> parts = elsewhere ? as_given().parts(group.index_in_peers()) : group.parts();
  const auto at = std::find_if(parts.begin(), parts.end(), [&](const OwnedPart& part) { return part.parameter == parameter; });
  return at == parts.end() ? Link{} : Link{*at, static_cast<std::size_t>(at - parts.begin())};
}

// ---- checkpoints, and what searches tell states apart by -----------------------------------------------------------------------------

void ZeroStage1And2::load(const Engine& saved) {
  const auto& before = static_cast<const ZeroStage1And2&>(saved);
  scaler_ = before.scaler_;
  weights_.load(before.weights_);
  kept_->load(*before.kept_.operator->());
}

void ZeroStage1And2::fold(StateFold& f) const {
  DeepSpeedEngine::fold(f);
  scaler_.fold(f);
  f.number(static_cast<std::uint64_t>(micro_step_id_));
  f.flags({ready_for_gradients_, had_buckets_, out_of_reach_, epilogue_ran_, bucket_.extra_large});
  f.flags(already_reduced_);
  f.number(bucket_.elements);
  f.number(bucket_.index);
  f.number(bucket_.empty.size());
  for (const BucketEntry& entry : bucket_.entries) {
    f.number(entry.parameter);
    f.tensor(entry.gradient);
  }
  f.tensors(grad_accum_);
  f.tensors(deferred_);
  kept_->fold(f);
}

}  // namespace gradledger
