// Faults of what ranks do together: sums, averages, roots, sizes and order of collectives.
#include <algorithm>

#include "search/mutants/blocks.h"
#include "search/mutants/catalogue.h"
#include "sim/frameworks/search_space.h"
#include "sim/scenario/layout.h"

namespace gradledger::search {
namespace {

using enum ref::FindingClass;
using enum OpKind;

const std::vector<std::string_view> not_stage_3 = engines_that([](const EngineTraits& t) { return t.gathers_weights || !t.reduces_to_owners; });

// The divisor of the average times a factor, however it is applied.
Change divisor_times(std::function<double(const Moment&)> factor) {
  return [=](Tape& tape, std::size_t at, const Moment& m) { tape[at].scalar *= tape[at].kind == divide ? factor(m) : 1.0 / factor(m); };
}

double ranks_and_one(const Moment& m) { return (m.scenario.world_size + 1.0) / m.scenario.world_size; }

// Chunks of a reduce-scatter: the ranks of its group, which may be fewer than all. Precondition: it has elements.
std::uint64_t chunks_of(const CollectiveCall& call) { return call.input.numel / call.output.numel; }

void one_less(CollectiveCall& call, const Moment&) {
  if (call.kind == CollectiveKind::reduce_scatter) {
    if (call.output.numel == 0) return;
    const std::uint64_t chunks = chunks_of(call);
    call.output.numel -= 1;
    call.input.numel -= chunks;
    return;
  }
  for (Slice* slice : {&call.input, &call.output})
    if (slice->numel > 0) --slice->numel;
}

void one_later(CollectiveCall& call, const Moment&) {
  if (call.kind == CollectiveKind::reduce_scatter) return;
  const std::uint64_t one = 1;
  for (Slice* slice : {&call.input, &call.output}) *slice = slice->part(std::min(one, slice->numel), slice->numel - std::min(one, slice->numel));
}

void into_the_neighbours_chunk(CollectiveCall& call, const Moment& m) {
  if (call.kind != CollectiveKind::reduce_scatter || call.output.numel == 0) return;
  const std::uint64_t neighbour = (m.rank + 1) % chunks_of(call);
  call.output = call.input.part(neighbour * call.output.numel, call.output.numel);
}

void next_root(CollectiveCall& call, const Moment& m) {
  if (call.kind == CollectiveKind::reduce) call.root = (call.root + 1) % m.scenario.world_size;
}

void another_kind(CollectiveCall& call, const Moment&) {
  call.kind = call.kind == CollectiveKind::all_reduce ? CollectiveKind::reduce : CollectiveKind::all_reduce;
  call.input = call.output;
}

void small_buckets(Scenario& s) {
  several_micro_batches(s);
  if (s.parameters.size() == 1) s.parameters.push_back({"another", s.parameters[0].numel + 1, std::nullopt});
  s.engine.param_groups.clear();
  tuning_of(s).limit_buckets(s, 1);
}

void roots(Scenario& s) {
  several_micro_batches(s);
  tuning_of(s).reduce_to_owners(s);
}

void scattered(Scenario& s) {
  several_micro_batches(s);
  tuning_of(s).scatter(s);
}

// Of a world of four.
void in_two_halves(Scenario& s) {
  several_micro_batches(s);
  s.world_size = 4;
  s.groups["half"] = {{0, 1}, {2, 3}};
}

void over_half_the_ranks(CollectiveCall& call, const Moment& m) { call.group = group_named(m.scenario, named_groups(m.scenario), "half", m.rank).id; }

// Two stages of a pipeline, each with ranks of its own.
void two_stages(Scenario& s) {
  counted_micro_batches(s);
  s.world_size = 4;
  several_ranks(s);
  if (s.parameters.size() == 1) s.parameters.push_back({"another", s.parameters[0].numel + 1, std::nullopt});
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p) s.parameters[p].pipeline_stage = p % 2;
  s.engine.param_groups.clear();
  s.engine.pipeline_stages = 2;
}

Which into_buckets() { return either(from_to(BufferPurpose::gradients, BufferPurpose::buckets, {copy}), from_to(BufferPurpose::accumulators, BufferPurpose::buckets, {copy})); }
Which out_of_buckets() { return either(from_to(BufferPurpose::buckets, BufferPurpose::gradients, {copy}), from_to(BufferPurpose::buckets, BufferPurpose::accumulators, {copy})); }

// A row a mutant.
// clang-format off
std::vector<Mutant> of_sums() {
  return {
      {"reduction-skipped", "gradients are neither summed nor averaged over the ranks", {missing_reduction, boundary_leak}, every_variant,
       {.edit = edit(always, Take::each, either(reductions, divisions), dropped)}, several_micro_batches},
      {"sum-skipped", "gradients are divided by the ranks and never summed over them", {discarded_gradient, offload_loss}, every_variant,
       {.edit = edit(always, Take::each, reductions, dropped)}, several_micro_batches},
      {"reduction-repeated", "gradients are summed over the ranks twice", {wrong_scale, duplicated_gradient}, every_variant,
       {.edit = edit(always, Take::each, reductions, repeated)}, several_micro_batches},
      {"average-skipped", "gradients are summed over the ranks and not divided", {wrong_scale}, every_variant,
       {.edit = edit(always, Take::each, divisions, dropped)}, several_micro_batches},
      {"average-repeated", "gradients are divided by the ranks twice", {wrong_scale}, every_variant,
       {.edit = edit(always, Take::each, divisions, repeated)}, several_micro_batches},
      // In bf16 three quarters of a weight are, within rounding, what an element out of place would have.
      {"average-off-by-one", "gradients are divided by one rank more than there are", {wrong_scale}, all_but_whole_accumulators,
       {.edit = edit(always, Take::each, divisions, divisor_times(ranks_and_one))}, three_of_each},
      {"average-skipped-on-a-rank", "one rank leaves out the division", {wrong_scale, duplicated_gradient}, every_variant,
       {.edit = edit(on_rank(0), Take::each, divisions, dropped)}, several_micro_batches},
      {"average-of-an-average", "a collective that averages is divided once more", {wrong_scale}, every_variant,
       {.edit = edit(always, Take::each, reductions, called([](CollectiveCall& c, const Moment&) { c.op = ReduceOp::avg; }))}, several_micro_batches},
      {"broadcast-instead-of-sum", "the first rank's gradients go to all ranks, and nobody else's", {discarded_gradient, offload_loss}, not_stage_3,
       {.edit = edit(always, Take::each, reductions, called([](CollectiveCall& c, const Moment&) { c.kind = CollectiveKind::broadcast, c.root = 0; }))}, several_micro_batches},
      {"averages-over-half-the-ranks", "the group that is averaged over is taken for half as large", {wrong_scale},
       engines_that([](const EngineTraits& t) { return !t.offloads && (t.gathers_weights || !t.reduces_to_owners); }),
       {.believe = [](Scenario& s, EngineContext&) { s.engine.sequence_parallel_size = 2; }},
       [](Scenario& s) {
         several_micro_batches(s);
         s.world_size += s.world_size % 2;
       }},
      {"sum-over-half-the-ranks", "gradients are averaged over half of the ranks", {wrong_group}, plain_variants,
       {.edit = both_edits(edit(always, Take::each, reductions, called(over_half_the_ranks)), edit(always, Take::each, divisions, divisor_times([](const Moment&) { return 0.5; })))},
       in_two_halves},
      {"communicates-in-bf16", "what is to be communicated in fp32 is communicated in bf16", {rounding_excess}, wide_accumulators,
       {.believe = [](Scenario& s, EngineContext&) { tuning_of(s).set_wire_dtype(s, Dtype::bfloat16); }}, wide_accumulation},
  };
}
// clang-format on

// A row a mutant.
// clang-format off
std::vector<Mutant> of_slices() {
  return {
      {"reduction-short", "the last element of a bucket is not reduced", {discarded_gradient, offload_loss, misplaced_shard}, every_variant,
       {.edit = edit(always, Take::each, reductions, called(one_less))}, several_micro_batches},
      {"reduction-starts-late", "the first element of a bucket is not reduced", {discarded_gradient, offload_loss}, not_stage_3,
       {.edit = edit(always, Take::each, reductions, called(one_later))}, several_micro_batches},
      {"bucket-not-copied-back", "what was reduced stays in the bucket", {missing_reduction, boundary_leak}, replicating_variants,
       {.edit = edit(always, Take::each, out_of_buckets(), dropped)},
       several_micro_batches},
      {"bucket-not-filled", "a gradient is not copied into the bucket that is reduced", {unwritten_memory, stale_gradient}, every_variant,
       {.edit = edit(always, Take::first, into_buckets(), dropped)},
       several_micro_batches},
      {"bucket-filled-out-of-place", "a gradient lies one element off in the bucket that is reduced", {misplaced_shard, unwritten_memory}, every_variant,
       {.edit = edit(always, Take::last, into_buckets(), target_slid)},
       several_micro_batches},
      {"reduced-slice-shifted", "what leaves the bucket comes from one element further", {misplaced_shard, unwritten_memory}, device_variants,
       {.edit = edit(always, Take::first, out_of_buckets(), source_slid)},
       several_micro_batches},
      {"scattered-to-the-neighbour", "a reduce-scatter writes to the place of the next rank's chunk", {discarded_gradient, misplaced_shard, offload_loss}, sharded_weights,
       {.edit = edit(always, Take::each, reductions, called(into_the_neighbours_chunk))}, scattered},
      {"wrong-root", "a bucket is reduced to the rank after its owner", {discarded_gradient, offload_loss, misplaced_shard}, bucket_variants,
       {.edit = edit(always, Take::each, reductions, called(next_root))}, roots},
  };
}
// clang-format on

// A row a mutant.
// clang-format off
std::vector<Mutant> of_agreement() {
  return {
      {"reduces-over-the-world", "gradients are reduced over all ranks instead of those of the stage", {collective_mismatch, misplaced_shard, deadlock},
       engines_that([](const EngineTraits& t) { return !t.offloads && !t.reduces_every_backward; }),
       {.edit = edit(always, Take::each, reductions, called([](CollectiveCall& c, const Moment&) { c.group = 0; }))}, two_stages},
      {"wrong-root-on-a-rank", "one rank names another root than its peers", {collective_mismatch}, bucket_variants,
       {.edit = edit(on_rank(1), Take::first, reductions, called(next_root))}, roots},
      {"reduction-short-on-a-rank", "one rank reduces an element less than its peers", {collective_mismatch}, every_variant,
       {.edit = edit(on_rank(1), Take::first, reductions, called(one_less))}, several_micro_batches},
      {"other-collective-on-a-rank", "one rank calls another collective than its peers", {collective_mismatch}, every_variant,
       {.edit = edit(on_rank(1), Take::first, reductions, called(another_kind))}, several_micro_batches},
      {"collective-skipped-on-a-rank", "one rank leaves out a reduction that its peers wait for", {deadlock, collective_mismatch}, every_variant,
       {.edit = edit(on_rank(1), Take::first, reductions, dropped)}, several_micro_batches},
      {"last-collective-skipped-on-a-rank", "one rank leaves out the last collective of a step", {deadlock, collective_mismatch}, flat_variants,
       {.edit = edit(on_rank(1, at_step), Take::last, collectives(Purpose::parameter), dropped)}, several_micro_batches},
      {"collectives-out-of-order-on-a-rank", "one rank reduces two buckets in the other order", {collective_mismatch, misplaced_shard}, owner_variants,
       {.edit = swap_first(on_rank(1), reductions, [](const Op&, const Op&) { return true; }, [](Op& one, Op& other) { std::swap(one.index, other.index); })},
       small_buckets},
      {"weights-not-gathered", "updated weights are not gathered from their owners", {rank_divergence, rounding_excess}, flat_variants,
       {.edit = edit(always, Take::each, collectives(Purpose::parameter), dropped)}, several_micro_batches},
      {"weights-gathered-too-early", "weights are gathered before they are updated", {rank_divergence, rounding_excess}, flat_variants,
       {.edit = edit(at_step, Take::each, collectives(Purpose::parameter), to_the_front)}, several_micro_batches},
      {"norm-not-summed", "each rank clips by the norm of its own part", {wrong_norm}, owner_variants,
       {.edit = edit(always, Take::each, collectives(Purpose::norm), dropped)}, clipped},
      {"norm-averaged", "the mean of the ranks' sums of squares stands for their sum", {wrong_norm},
       engines_that([](const EngineTraits& t) { return t.reduces_to_owners && (t.offloads || t.gathers_weights); }),
       {.edit = edit(always, Take::each, collectives(Purpose::norm), called([](CollectiveCall& c, const Moment&) { c.op = ReduceOp::avg; }))}, clipped},
      {"overflow-not-agreed", "a rank that sees no overflow does not hear of its peers'", {wrong_skip}, owners_on_the_device,
       {.edit = edit(always, Take::each, collectives(Purpose::overflow), dropped)}, planted_overflow},
  };
}
// clang-format on

}  // namespace

std::vector<Mutant> reduction_mutants() {
  std::vector<Mutant> out = of_sums();
  for (const auto part : {of_slices, of_agreement})
    for (Mutant& mutant : part()) out.push_back(std::move(mutant));
  return out;
}

}  // namespace gradledger::search
