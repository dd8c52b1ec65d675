// Faults of ranks that hold parts of one model: tensor-parallel ones, stages of a pipeline, those with other experts.
#include "search/mutants/blocks.h"
#include "search/mutants/catalogue.h"
#include "sim/frameworks/search_space.h"
#include "sim/scenario/layout.h"

namespace gradledger::search {
namespace {

using enum ref::FindingClass;
using enum OpKind;

// Engines of frameworks in which stages can share a weight have all of these ranks.
std::vector<std::string_view> that_lay_out() {
  std::vector<std::string_view> out;
  for (const std::string_view name : loop_engines_that([](const EngineTraits&) { return true; }))
    for (const Framework* framework : frameworks())
      for (const Variant& variant : framework->search_space() ? framework->search_space()->variants() : std::span<const Variant>{}) {
        Scenario world;
        if (variant.name != name) continue;
        variant.apply(world);
        if (framework->search_space()->tuning().tie_stages(world)) out.push_back(name);
      }
  return out;
}
const std::vector<std::string_view> laid_out = that_lay_out();

// ---- which ----------------------------------------------------------------------------------------------------------------------------

// What becomes of reductions among a rank's ranks of this name alone, whatever else these are called.
Change in_group(const char* name, Change change) {
  return [=](Tape& tape, std::size_t at, const Moment& m) {
    const Groups groups = named_groups(m.scenario);
    if (groups.contains(name) && process_groups(m.scenario)[tape.call(tape[at]).group] == groups.of(name, m.rank)) change(tape, at, m);
  };
}

Change to_group(const char* name) {
  return called([=](CollectiveCall& call, const Moment& m) { call.group = group_named(m.scenario, named_groups(m.scenario), name, m.rank).id; });
}

const Which shares_of_a_sequence = from_to(BufferPurpose::buckets, BufferPurpose::accumulators, {copy});

// One rank hears of no_sync in its first window alone, whose backwards it takes as the measure of later ones.
void unheard_later_on_a_rank(Told& told, const Event& event, const Moment& m) {
  if (m.rank == 1 && after_first_window(m) && (event.is<events::EnterNoSync>() || event.is<events::ExitNoSync>())) told.now.clear();
}

// ---- what a case must have ------------------------------------------------------------------------------------------------------------

// The same ranks and windows whatever was drawn.
template <bool (Tuning::*wish)(Scenario&) const>
void ranks_of_one_model(Scenario& s) {
  s.script.clear();  // names parameters that are gone
  s.contract = {};
  tuning_of(s).overlap(s, false);
  (tuning_of(s).*wish)(s);
  several_micro_batches(s);
}

// Reductions run beside the backward.
void deferring_with_overlap(Scenario& s) {
  several_ranks(s);
  tuning_of(s).overlap(s, true);
  s.after_error = AfterError::stop;
  search_space_of(s).write_loop({.windows = 3, .micro_batches = 4, .defers = true}, s);
}

}  // namespace

// A row a mutant.
// clang-format off
std::vector<Mutant> layout_mutants() {
  return {
      {"experts-averaged-with-dense-parameters", "gradients of experts are averaged over the ranks of dense parameters, which have other experts",
       {wrong_group, misplaced_shard, collective_mismatch, deadlock}, laid_out,
       {.edit = edit(always, Take::each, reductions, in_group("expert_dp", to_group("dp_cp")))}, ranks_of_one_model<&Tuning::divide_experts>},
      {"shared-embedding-not-summed", "first and last stage do not add up what each has of the gradient that they share", {discarded_gradient, missing_reduction, wrong_group}, laid_out,
       {.edit = edit(always, Take::each, reductions, in_group("embedding", dropped))}, ranks_of_one_model<&Tuning::tie_stages>},
      {"shared-embedding-summed-twice", "first and last stage add up the gradient that they share twice", {wrong_scale, duplicated_gradient}, laid_out,
       {.edit = edit(always, Take::each, reductions, in_group("embedding", repeated))}, ranks_of_one_model<&Tuning::tie_stages>},
      {"sequence-share-not-summed-on-a-rank", "one tensor-parallel rank keeps its own share of a gradient that the others have summed",
       {discarded_gradient, missing_reduction, wrong_group, rank_divergence, wrong_scale}, laid_out,
       {.edit = edit(on_rank(1), Take::each, shares_of_a_sequence, dropped)}, ranks_of_one_model<&Tuning::share_sequence>},
      {"no-sync-unheard-later-on-a-rank", "behind its first window one rank reduces what the others leave in no_sync",
       {discarded_gradient, missing_reduction, boundary_leak, wrong_scale, engine_error, deadlock, stream_race, stale_gradient}, laid_out,
       {.tell = unheard_later_on_a_rank}, deferring_with_overlap},
  };
}
// clang-format on

}  // namespace gradledger::search
