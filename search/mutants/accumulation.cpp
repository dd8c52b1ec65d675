// Faults on the way of a micro-batch's gradient into the accumulator.
#include "search/mutants/blocks.h"
#include "search/mutants/catalogue.h"
#include "sim/frameworks/search_space.h"

namespace gradledger::search {
namespace {

using enum ref::FindingClass;
using enum OpKind;

const std::vector<std::string_view> accumulating = engines_that([](const EngineTraits& t) { return t.accumulates_itself; });
const std::vector<std::string_view> storing = engines_that([](const EngineTraits& t) { return t.reduces_every_backward && (t.offloads || !t.gathers_weights); });
const std::vector<std::string_view> by_autograd = engines_that([](const EngineTraits& t) { return !t.accumulates_itself; });

bool sets(const Tape& tape, const Op& op) { return deposits(tape, op) && op.flag == 0; }
bool adds(const Tape& tape, const Op& op) { return deposits(tape, op) && op.flag != 0; }

// Sums of gradients, not of squares.
bool accumulations(const Tape& tape, const Op& op) { return op.kind == accumulate && tape.purpose(op.target) != BufferPurpose::scalars; }

double steps_of(const Moment& m) { return m.timeline.contract.steps_scalar; }

Which stores_on_the_host() { return that(writes(BufferPurpose::accumulators, {copy}), from_space(MemorySpace::device, MemorySpace::host, {copy})); }

void twin_parameters(Scenario& s) {
  several_micro_batches(s);
  s.engine.param_groups.clear();
  if (s.parameters.size() == 1) s.parameters.push_back({"twin", 0, std::nullopt});
  s.parameters[1].numel = s.parameters[0].numel;
}

void single_precision(Scenario& s) {
  several_micro_batches(s);
  tuning_of(s).set_model_dtype(s, Dtype::float32);
  tuning_of(s).set_accumulation_dtype(s, std::nullopt);
  tuning_of(s).set_wire_dtype(s, std::nullopt);
}

void swap_parameters(Op& one, Op& other) { std::swap(one.source, other.source); }

// A row a mutant.
// clang-format off
std::vector<Mutant> of_deposits() {
  return {
      {"micro-batch-lost", "the last micro-batch's gradients are taken for zeros", {discarded_gradient, offload_loss}, every_variant,
       {.edit = edit(at_boundary, Take::each, deposits, zeroed)}, several_micro_batches},
      {"micro-batch-lost-on-a-rank", "one rank's gradients of a micro-batch are taken for zeros", {discarded_gradient, offload_loss}, every_variant,
       {.edit = edit(on_rank(1, at_inner_micro_batch), Take::each, deposits, zeroed)}, several_micro_batches},
      {"parameter-lost", "the first parameter that is ready contributes nothing at the boundary", {discarded_gradient, offload_loss}, every_variant,
       {.edit = edit(at_boundary, Take::first, deposits, zeroed)}, several_micro_batches},
      {"hook-before-gradient", "a hook runs before autograd has written the gradient", {unwritten_memory}, every_variant,
       {.edit = edit(always, Take::first, sets, dropped)}, several_micro_batches},
      {"gradient-deposited-twice", "the last micro-batch's gradient of a parameter is added again", {duplicated_gradient}, every_variant,
       {.edit = edit(at_boundary, Take::first, deposits, repeated)}, several_micro_batches},
      {"gradient-overwrites", "a new micro-batch overwrites param.grad instead of adding to it", {discarded_gradient, offload_loss}, by_autograd,
       {.edit = edit(always, Take::each, adds, overwriting)}, several_micro_batches},
      {"gradients-swapped", "two parameters of one size receive each other's gradient", {misplaced_shard}, every_variant,
       {.edit = swap_first(at_boundary, deposits, [](const Op& a, const Op& b) { return a.source.numel == b.source.numel && a.source.buffer != b.source.buffer; }, swap_parameters)},
       twin_parameters},
      {"micro-batch-divided-twice", "the last micro-batch is divided by gradient_accumulation_steps once more", {wrong_scale}, every_variant,
       {.edit = edit(at_boundary, Take::each, deposits, scaled_by([](const Moment& m) { return 1.0 / steps_of(m); }))}, counted_micro_batches},
      {"steps-not-divided-by", "no micro-batch is divided by gradient_accumulation_steps", {wrong_scale}, every_variant,
       {.edit = edit(always, Take::each, deposits, scaled_by(steps_of))}, counted_micro_batches},
      // In bf16 three quarters of a weight are, within rounding, what an element out of place would have.
      {"steps-off-by-one", "every micro-batch is divided by gradient_accumulation_steps + 1", {wrong_scale}, all_but_whole_accumulators,
       {.edit = edit(always, Take::each, deposits, scaled_by([](const Moment& m) { return steps_of(m) / (steps_of(m) + 1); }))}, three_of_each},
      // The ledger's integers do not fit bf16, while each alone does: such sums are named as those of other elements.
      {"gradient-rounded-to-bf16", "an fp32 gradient passes through bf16", {rounding_excess, misplaced_shard}, all_but_whole_accumulators,
       {.edit = edit(always, Take::each, deposits, through_bf16)}, single_precision},
  };
}
// clang-format on

// A row a mutant.
// clang-format off
std::vector<Mutant> of_accumulators() {
  return {
      {"accumulation-overwrites", "a micro-batch is stored over the accumulator instead of being added", {discarded_gradient, offload_loss}, accumulating,
       {.edit = edit(at_later_micro_batch, Take::each, accumulations, overwriting)}, several_micro_batches},
      {"accumulation-lost", "the addition to the accumulator is left out at the boundary", {discarded_gradient, offload_loss}, accumulating,
       {.edit = edit(at_boundary, Take::each, accumulations, dropped)}, several_micro_batches},
      {"accumulation-twice", "the boundary micro-batch is added to the accumulator twice", {duplicated_gradient}, accumulating,
       {.edit = edit(at_boundary, Take::each, accumulations, repeated)}, several_micro_batches},
      {"accumulation-shifted", "what is added comes from one element further", {misplaced_shard}, accumulating,
       {.edit = edit(at_later_micro_batch, Take::each, accumulations, source_slid)}, several_micro_batches},
      {"accumulation-short", "the last element of a slice is not added", {discarded_gradient, offload_loss}, accumulating,
       {.edit = edit(at_later_micro_batch, Take::each, accumulations, shortened)}, several_micro_batches},
      {"accumulator-rounded-to-bf16", "the accumulator is rounded to bf16 after each addition", {rounding_excess, misplaced_shard}, accumulating,
       {.edit = edit(always, Take::each, accumulations, through_bf16)},
       [](Scenario& s) {
         several_micro_batches(s);
         if (reduces_every_backward(s)) single_precision(s);
       }},
      {"accumulates-in-model-dtype", "the accumulator has the model's dtype and not the one that was asked for", {rounding_excess}, wide_accumulators,
       {.believe = [](Scenario& s, EngineContext&) { tuning_of(s).set_accumulation_dtype(s, std::nullopt); }}, wide_accumulation},
      {"store-adds", "the first micro-batch of a window is added to what the window before left", {stale_gradient}, storing,
       {.edit = edit(both(at_first_micro_batch, after_first_window), Take::each, writes(BufferPurpose::accumulators, {copy}), adding)}, several_micro_batches},
      {"host-accumulator-not-fetched", "the host accumulator is not brought to the device before it is added to", {unwritten_memory}, host_accumulators,
       {.edit = edit(at_backward, Take::each, from_space(MemorySpace::host, MemorySpace::device, {copy}), dropped)}, several_micro_batches},
      {"host-accumulator-not-stored", "a sum is not written back to the host accumulator", {offload_loss}, host_accumulators,
       {.edit = edit(both(at_later_micro_batch, at_inner_micro_batch), Take::each, stores_on_the_host(), dropped)},
       several_micro_batches},
      {"host-accumulator-short", "the last element of a slice is not written back to the host accumulator", {offload_loss, stale_gradient}, host_accumulators,
       {.edit = edit(at_inner_micro_batch, Take::each, stores_on_the_host(), shortened)},
       several_micro_batches},
  };
}
// clang-format on

}  // namespace

std::vector<Mutant> accumulation_mutants() {
  std::vector<Mutant> out = of_deposits();
  for (Mutant& mutant : of_accumulators()) out.push_back(std::move(mutant));
  return out;
}

}  // namespace gradledger::search
