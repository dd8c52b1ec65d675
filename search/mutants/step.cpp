// Faults of a step: norm, clipping, loss scale, overflow, and what the base optimizer does.
#include <algorithm>

#include "search/mutants/blocks.h"
#include "search/mutants/catalogue.h"
#include "sim/frameworks/search_space.h"

namespace gradledger::search {
namespace {

using enum ref::FindingClass;
using enum OpKind;

const std::vector<std::string_view> mastered = engines_that([](const EngineTraits& t) { return t.reduces_to_owners || t.accumulates_itself; });

// The factor that unscales and clips.
bool factors(const Tape& tape, const Op& op) {
  if (op.kind != multiply) return false;
  const BufferPurpose purpose = tape.purpose(op.target);
  return purpose == BufferPurpose::master_gradients || purpose == BufferPurpose::gradients || purpose == BufferPurpose::accumulators;
}

Which squares() { return named("norm_squared", of_kind({squared_norm, accumulate})); }
Which flags(OpKind kind) { return named("overflow", of_kind({kind})); }

void shrink_update(UpdateCall& u, const Moment&) {
  for (Slice* slice : {&u.parameter, &u.gradient, &u.first_moment, &u.second_moment})
    if (slice->numel > 0) --slice->numel;
}

void next_step_number(UpdateCall& u, const Moment&) {
  u.scalars.bias_correction1 = 1 - (1 - u.scalars.bias_correction1) * u.scalars.beta1;
  u.scalars.bias_correction2 = 1 - (1 - u.scalars.bias_correction2) * u.scalars.beta2;
}

void decaying(Scenario& s) {
  with_moments(s);
  s.engine.optimizer.type = OptimizerType::adamw;
  s.engine.optimizer.weight_decay = 0.125;
  s.engine.optimizer.learning_rate = 0.25;
  s.engine.param_groups.clear();
}

// As the documentation has it: the scale moves after the step has used it.
void moving_scale(Scenario& s) {
  half_precision(s);
  counted_micro_batches(s);
  tuning_of(s).set_loss_scale(s, {.initial = 16, .dynamic = true, .window = 1});
  tuning_of(s).set_defect(s, "unscaled-by-the-next-scale", false);
}

void shrinking_scale(Scenario& s) {
  planted_overflow(s);
  tuning_of(s).set_loss_scale(s, {.initial = 16, .dynamic = true, .window = 1000});
}

// A row a mutant.
// clang-format off
std::vector<Mutant> of_norms() {
  return {
      {"clipping-skipped", "gradients are not clipped", {wrong_norm}, every_variant, {.edit = edit(at_step, Take::each, factors, dropped)}, clipped},
      {"clipping-repeated", "gradients are clipped twice", {wrong_norm}, every_variant, {.edit = edit(at_step, Take::each, factors, repeated)}, clipped},
      {"norm-of-a-part", "a gradient is left out of the norm", {wrong_norm}, every_variant, {.edit = edit(at_step, Take::first, squares(), dropped)}, clipped},
      {"norm-counts-twice", "a gradient is in the norm twice", {wrong_norm}, every_variant, {.edit = edit(at_step, Take::first, squares(), repeated)}, clipped},
      {"norm-of-a-short-slice", "the last element of each gradient is left out of the norm", {wrong_norm}, device_variants,
       {.edit = edit(at_step, Take::each, of_kind({squared_norm}), [](Tape& tape, std::size_t at, const Moment&) { tape[at].source.numel -= tape[at].source.numel > 0; })}, clipped},
      {"norm-without-root", "the sum of squares is taken for the norm", {wrong_norm}, every_variant, {.edit = edit(at_step, Take::last, of_kind({square_root}), dropped)}, clipped},
      {"norm-not-reset", "the norm goes on from the sum of squares of the step before", {wrong_norm}, every_variant,
       {.edit = edit(both(at_step, after_first_window), Take::each, named("norm_squared", of_kind({fill})), dropped)},
       [](Scenario& s) {
         several_micro_batches(s);
         clipped(s);
       }},
      {"clips-by-twice-the-norm", "the clip factor comes from twice the norm", {wrong_norm}, every_variant, {.value = [](double value, const Moment&) { return 2 * value; }}, clipped},
  };
}
// clang-format on

// A row a mutant.
// clang-format off
std::vector<Mutant> of_scales() {
  return {
      {"unscaling-skipped", "the loss scale is not taken out of the gradients", {wrong_scale}, owner_variants, {.edit = edit(at_step, Take::each, factors, dropped)}, half_precision},
      {"unscaled-twice", "the loss scale is taken out of the gradients twice", {wrong_scale}, owner_variants, {.edit = edit(at_step, Take::each, factors, repeated)}, half_precision},
      {"loss-scaled-twice", "the loss is multiplied by its scale twice", {wrong_scale}, owner_variants,
       {.edit = edit(always, Take::each, deposits, scaled_by([](const Moment& m) { return m.timeline.contract.loss_scale.initial; }))}, half_precision},
      {"unscaled-by-the-next-scale", "a step divides by the scale that the next window has", {wrong_scale}, owner_variants,
       {.believe = has_defect("unscaled-by-the-next-scale")}, moving_scale},
      {"scale-grows-late", "the loss scale counts one good step too many before it doubles", {wrong_scale}, owner_variants,
       {.believe = has_defect("scale-grows-late")}, moving_scale},
      {"scale-not-halved", "an overflow does not halve the loss scale", {wrong_scale}, owner_variants,
       {.believe = has_defect("scale-not-halved")}, shrinking_scale},
      {"overflow-unseen", "gradients are not looked at for infinities", {nonfinite_missed}, owner_variants,
       {.edit = edit(always, Take::each, of_kind({check_finite}), dropped)}, planted_overflow},
      {"overflow-ignored", "a step goes on although it saw an overflow", {nonfinite_missed}, owner_variants,
       {.value = [](double value, const Moment&) { return value == 1.0 ? 0.0 : value; }}, planted_overflow},
      {"overflow-flag-not-reset", "the flag of a skipped step is still up at the next", {wrong_skip}, owner_variants,
       {.edit = edit(both(at_step, after_first_window), Take::each, flags(fill), dropped)}, planted_overflow},
      {"skips-without-overflow", "a step is skipped although every gradient is finite", {wrong_skip}, owner_variants,
       {.value = [](double value, const Moment&) { return value == 0.0 ? 1.0 : value; }}, half_precision},
      {"one-rank-skips", "one rank skips a step that its peers take", {wrong_skip}, owner_variants,
       {.value = [](double value, const Moment& m) { return m.rank == 1 && value == 0.0 ? 1.0 : value; }}, half_precision},
  };
}
// clang-format on

// A row a mutant.
// clang-format off
std::vector<Mutant> of_updates() {
  return {
      {"first-moment-frozen", "Adam's first moment never moves", {rounding_excess}, every_variant,
       {.edit = edit(always, Take::each, updates_with_moments, updated([](UpdateCall& u, const Moment&) { u.scalars.beta1 = 1, u.scalars.one_minus_beta1 = 0; }))}, with_moments},
      {"moments-swapped", "Adam's moments take each other's place", {rounding_excess}, every_variant,
       {.edit = edit(always, Take::each, updates_with_moments, updated([](UpdateCall& u, const Moment&) { std::swap(u.first_moment, u.second_moment); }))}, with_moments},
      {"bias-not-corrected", "Adam leaves out its bias correction", {rounding_excess}, every_variant,
       {.edit = edit(always, Take::each, updates_with_moments, updated([](UpdateCall& u, const Moment&) { u.scalars.bias_correction1 = u.scalars.bias_correction2 = 1; }))}, with_moments},
      {"step-number-ahead", "Adam corrects its bias as of the next step", {rounding_excess}, every_variant,
       {.edit = edit(always, Take::each, updates_with_moments, updated(next_step_number))}, with_moments},
      {"weight-decay-lost", "weights do not decay", {rounding_excess}, every_variant,
       {.edit = edit(always, Take::each, updates, updated([](UpdateCall& u, const Moment&) { u.scalars.weight_decay = 0; }))}, decaying},
      {"weight-decay-in-the-gradient", "AdamW decays through the gradient, as Adam does", {rounding_excess}, every_variant,
       {.edit = edit(always, Take::each, updates, updated([](UpdateCall& u, const Moment&) { u.scalars.decoupled_decay = false; }))}, decaying},
      {"learning-rate-doubled", "an update takes twice the learning rate", {rounding_excess}, every_variant,
       {.edit = edit(at_step, Take::first, updates, updated([](UpdateCall& u, const Moment&) { u.scalars.learning_rate *= 2; }))}, several_micro_batches},
      {"update-skipped-on-a-rank", "one rank's optimizer does nothing", {rounding_excess, rank_divergence}, every_variant,
       {.edit = edit(on_rank(1, at_step), Take::each, updates, dropped)}, several_micro_batches},
      {"update-repeated", "the optimizer takes the same gradient twice", {rounding_excess}, every_variant, {.edit = edit(at_step, Take::first, updates, repeated)}, several_micro_batches},
      {"update-short", "the last element of a partition is not updated", {rounding_excess}, every_variant, {.edit = edit(at_step, Take::each, updates, updated(shrink_update))}, several_micro_batches},
      {"weights-not-stored", "the master's new values do not reach the weights", {rounding_excess, rank_divergence}, mastered,
       {.edit = edit(at_step, Take::each, from_to(BufferPurpose::master_weights, BufferPurpose::weights, {copy}), dropped)}, several_micro_batches},
      {"weights-stored-too-early", "the weights take the master's values of before the update", {rounding_excess, rank_divergence}, mastered,
       {.edit = edit(at_step, Take::each, from_to(BufferPurpose::master_weights, BufferPurpose::weights, {copy}), to_the_front)}, several_micro_batches},
      {"weights-stored-out-of-place", "the master's new values go one element off", {rounding_excess, rank_divergence}, flat_variants,
       {.edit = edit(at_step, Take::each, from_to(BufferPurpose::master_weights, BufferPurpose::weights, {copy}), target_shifted)}, several_micro_batches},
      {"master-gradient-not-copied", "the window's gradient does not reach the host's master gradient", {offload_loss, stale_gradient}, offload_variants,
       {.edit = edit(at_boundary, Take::each, writes(BufferPurpose::master_gradients, {copy}), dropped)}, several_micro_batches},
      {"master-gradient-shifted", "the master gradient is taken from one element further", {misplaced_shard, unwritten_memory}, owner_variants,
       {.edit = edit(always, Take::each, writes(BufferPurpose::master_gradients, {copy}), source_slid)}, several_micro_batches},
      {"master-gradient-short", "the last element of a gradient does not reach the master gradient", {offload_loss, stale_gradient, unwritten_memory}, owner_variants,
       {.edit = edit(always, Take::each, writes(BufferPurpose::master_gradients, {copy}), shortened)}, several_micro_batches},
  };
}
// clang-format on

}  // namespace

std::vector<Mutant> step_mutants() {
  std::vector<Mutant> out = of_norms();
  for (const auto part : {of_scales, of_updates})
    for (Mutant& mutant : part()) out.push_back(std::move(mutant));
  return out;
}

}  // namespace gradledger::search
