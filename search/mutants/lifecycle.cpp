// Faults of what the framework's host code remembers: boundaries, counters, resets, and who it is.
#include <algorithm>

#include "search/mutants/blocks.h"
#include "search/mutants/catalogue.h"
#include "sim/frameworks/search_space.h"

namespace gradledger::search {
namespace {

using enum ref::FindingClass;
using enum OpKind;

// Where what is reduced at every backward is stepped in parts of replicated weights, the accumulator has no zero_grad.
const std::vector<std::string_view> cleared_by_zero_grad = engines_that([](const EngineTraits& t) { return !(t.reduces_every_backward && t.gathers_weights); });

Event beside(const Event& event, EventBody body) { return {.body = std::move(body), .step = event.step}; }

bool says_boundary(const Event& event) { return event.is<events::SetBoundary>() && event.as<events::SetBoundary>()->boundary; }
bool inner_step(const Event& event) { return event.is<events::Step>() && !event.updates(); }

bool inner_backward(const Event& event, const Moment& m) { return event.is<events::Backward>() && !m.timeline.backwards[event.as<events::Backward>()->ordinal].boundary; }

void boundary_late(Told& told, const Event& event, const Moment&) {
  if (says_boundary(event)) {
    told.held = {event};
    told.now.clear();
  } else if (event.is<events::Backward>()) {
    told.now.insert(told.now.end(), told.held.begin(), told.held.end());
    told.held.clear();
  }
}

// At the backward before that of the boundary.
void boundary_early(Told& told, const Event& event, const Moment& m) {
  if (!inner_backward(event, m)) return;
  const std::size_t next = event.as<events::Backward>()->ordinal + 1;
  if (next >= m.timeline.backwards.size() || m.timeline.backwards[next].step != event.step || !m.timeline.backwards[next].boundary) return;
  told.now.insert(told.now.begin(), beside(event, events::SetBoundary{true}));
}

// No backward is an inner one for the engine.
void boundary_everywhere(Told& told, const Event& event, const Moment& m) {
  if (inner_backward(event, m)) told.now = {beside(event, events::SetBoundary{true}), event, beside(event, events::SetBoundary{false})};
}

void surplus_reported(Scenario& s) {
  several_micro_batches(s);
  s.contract.reports_surplus = true;
}

void boundary_unheard(Told& told, const Event& event, const Moment& m) {
  if (m.rank == 1 && says_boundary(event)) told.now.clear();
}

// The first step() that is no boundary; `held` remembers that it was there.
void first_step(Told& told, const Event& event, std::size_t times) {
  if (!inner_step(event) || !told.held.empty()) return;
  told.held = {event};
  told.now.assign(times, event);
}

// The step() after one that was skipped.
void step_after_skip(Told& told, const Event& event, const Moment& m) {
  const auto is_planted = [&](const Plant& plant) { return m.timeline.backwards[plant.backward].step == event.step; };
  if (event.updates() && std::any_of(m.timeline.planted.begin(), m.timeline.planted.end(), is_planted)) {
    told.held = {event};
  } else if (inner_step(event) && told.held.size() == 1) {
    told.held.push_back(event);
    told.now.clear();
  }
}

void zeroed_before_the_boundary(Told& told, const Event& event, const Moment& m) {
  if (event.is<events::Backward>() && !inner_backward(event, m)) told.now.insert(told.now.begin(), beside(event, events::OptimizerZeroGrad{}));
}

void zeroed_after_the_first(Told& told, const Event& event, const Moment& m) {
  if (at_first_micro_batch(m) && after_first_window(m)) told.now.push_back(beside(event, events::OptimizerZeroGrad{}));
}

void zero_grad_ignored(Told& told, const Event& event, const Moment&) {
  if (event.is<events::OptimizerZeroGrad>()) told.now.clear();
}

// Autograd finds what the window before left, and adds to it.
TapeEdit kept_after_the_step() {
  const auto gradients = [](OpKind kind) { return writes(BufferPurpose::gradients, {kind}); };
  const When next_window = both(at_first_micro_batch, after_first_window);
  return both_edits(edit(at_step, Take::each, gradients(release), dropped),
                    both_edits(edit(next_window, Take::each, gradients(allocate), dropped), edit(next_window, Take::each, deposits, adding)));
}

void override_boundaries(Scenario& s) {
  s.script.clear();
  several_micro_batches(s);
  tuning_of(s).count_windows(s, 1);
}

void dropped_by_the_user(Scenario& s) {
  override_boundaries(s);
  ScriptItem zero;
  zero.kind = ScriptKind::optimizer_zero_grad;
  std::vector<ScriptItem>& window = s.script.front().items;
  window.insert(window.begin() + 2, zero);
}

void in_one_bucket(Scenario& s) {
  override_boundaries(s);
  tuning_of(s).fill_flat_buckets(s);
}

// A row a mutant.
// clang-format off
std::vector<Mutant> of_boundaries() {
  return {
      {"boundary-everywhere", "every backward is taken for one at a boundary", {surplus_communication}, plain_variants, {.tell = boundary_everywhere}, surplus_reported},
      {"boundary-late", "the engine hears of a boundary one backward late", {discarded_gradient, offload_loss, missing_reduction, engine_error},
       engines_that([](const EngineTraits& t) { return t.offloads || t.gathers_weights || !t.reduces_to_owners; }), {.tell = boundary_late}, override_boundaries},
      {"boundary-early", "the engine takes the backward before for the boundary", {discarded_gradient, offload_loss, engine_error},
       engines_that([](const EngineTraits& t) { return t.reduces_to_owners && t.gathers_weights && !(t.reduces_every_backward && t.offloads); }),
       {.tell = boundary_early}, override_boundaries},
      {"boundary-unheard-on-a-rank", "one rank never hears that a boundary is there", {deadlock, collective_mismatch}, every_variant, {.tell = boundary_unheard}, override_boundaries},
      {"step-counted-twice", "a step() counts as two, and every boundary comes too early", {discarded_gradient, offload_loss}, every_variant,
       {.tell = [](Told& told, const Event& event, const Moment&) { first_step(told, event, 2); }}, counted_micro_batches},
      {"step-not-counted", "a step() is not counted, and every boundary comes too late", {discarded_gradient, offload_loss}, every_variant,
       {.tell = [](Told& told, const Event& event, const Moment&) { first_step(told, event, 0); }}, counted_micro_batches},
      {"step-not-counted-on-a-rank", "one rank's counter of step() calls is behind its peers'", {deadlock, collective_mismatch}, every_variant,
       {.tell = [](Told& told, const Event& event, const Moment& m) { if (m.rank == 1) first_step(told, event, 0); }}, counted_micro_batches},
      {"skipped-step-not-counted", "the counter of step() calls stands still after an overflow", {discarded_gradient, offload_loss}, owner_variants,
       {.tell = step_after_skip}, planted_overflow},
      {"step-repeated", "the model step runs twice", {engine_error},
       engines_that([](const EngineTraits& t) { return !t.offloads && (t.reduces_to_owners || t.accumulates_itself); }),
       {.tell = [](Told& told, const Event& event, const Moment&) { if (event.updates()) told.now.push_back(event); }}, override_boundaries},
      {"step-ignored", "step() at a boundary does nothing", {discarded_gradient, offload_loss}, every_variant,
       {.tell = [](Told& told, const Event& event, const Moment&) { if (event.updates()) told.now.clear(); }}, override_boundaries},
      {"boundary-private", "the all-reduce comes before the boundary's gradient is in the accumulator", {boundary_leak}, whole_accumulators,
       {.believe = has_defect("boundary-private")}, override_boundaries},
      {"boundary-deposited-late", "the boundary's gradient arrives when the all-reduce is over", {boundary_leak}, plain_variants,
       {.edit = edit(at_boundary, Take::each, deposits, to_the_end)}, override_boundaries},
  };
}
// clang-format on

// A row a mutant.
// clang-format off
std::vector<Mutant> of_resets() {
  return {
      {"zeroed-too-early", "gradients are zeroed before the boundary's backward", {discarded_gradient, offload_loss}, cleared_by_zero_grad,
       {.tell = zeroed_before_the_boundary}, override_boundaries},
      {"zeroed-too-late", "gradients are zeroed after the first backward of the next window", {discarded_gradient, offload_loss}, cleared_by_zero_grad,
       {.tell = zeroed_after_the_first}, override_boundaries},
      {"zero-grad-ignored", "what zero_grad must drop is still there", {stale_gradient},
       engines_that([](const EngineTraits& t) { return !t.reduces_every_backward; }), {.tell = zero_grad_ignored}, dropped_by_the_user},
      {"gradients-kept-after-step", "param.grad is not zeroed after a step", {stale_gradient}, plain_variants, {.edit = kept_after_the_step()}, override_boundaries},
      {"accumulator-kept-after-step", "the accumulator is not zeroed after a step", {stale_gradient}, whole_accumulators,
       {.edit = edit(at_step, Take::each, writes(BufferPurpose::accumulators, {fill}), dropped)}, override_boundaries},
      {"accumulator-tests-the-wrong-list", "whether a window is fresh is read off a list that is filled at its end", {discarded_gradient},
       engines_that([](const EngineTraits& t) { return t.reduces_every_backward && t.gathers_weights && !t.offloads; }),
       {.believe = has_defect("accumulator-tests-the-wrong-list")}, override_boundaries},
      {"host-accumulator-gated", "the host accumulator is used only with gradient_accumulation_steps above 1", {offload_loss},
       engines_that([](const EngineTraits& t) { return t.reduces_every_backward && t.gathers_weights && t.offloads; }),
       {.believe = has_defect("host-accumulator-gated")}, override_boundaries},
      {"takes-itself-for-its-peer", "one rank takes itself for the rank before", {discarded_gradient, misplaced_shard}, owner_variants,
       {.believe = [](Scenario&, EngineContext& c) { c.rank = c.rank == 1 ? 0 : c.rank; }}, in_one_bucket},
  };
}
// clang-format on

}  // namespace

std::vector<Mutant> lifecycle_mutants() {
  std::vector<Mutant> out = of_boundaries();
  for (Mutant& mutant : of_resets()) out.push_back(std::move(mutant));
  return out;
}

}  // namespace gradledger::search
