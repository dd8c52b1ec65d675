// Faults of engines whose loops own their windows: DistributedDataParallel, both sharding wrappers, Megatron-Core. First those of the rest of the
// catalogue that they can have too, then their own.
#include <algorithm>

#include "search/mutants/blocks.h"
#include "search/mutants/catalogue.h"
#include "sim/frameworks/loop_drawing.h"
#include "sim/frameworks/search_space.h"

namespace gradledger::search {
namespace {

using enum ref::FindingClass;
using enum OpKind;
using Engines = std::vector<std::string_view>;

const Engines any = loop_engines_that([](const EngineTraits&) { return true; });
const Engines of_torch = loop_engines_that([](const EngineTraits& t) { return t.reduces_every_backward; });
const Engines finalized = loop_engines_that([](const EngineTraits& t) { return !t.reduces_every_backward; });
const Engines sharding = loop_engines_that([](const EngineTraits& t) { return t.reduces_to_owners && t.reduces_every_backward; });
const Engines cutting = loop_engines_that([](const EngineTraits& t) { return t.reduces_to_owners; });
const Engines accumulating = loop_engines_that([](const EngineTraits& t) { return t.accumulates_itself; });
const Engines in_place = loop_engines_that([](const EngineTraits& t) { return !(t.reduces_to_owners && t.reduces_every_backward); });  // no bucket is made for a reduction
const Engines dividing = loop_engines_that([](const EngineTraits& t) { return !t.averages_by_operator; });
const Engines offloading = loop_engines_that([](const EngineTraits& t) { return t.offloads; });
// Of those, what a loop or a framework has none of is asked of itself: a loss scale, clipping, a block that leaves backwards unreduced.
Engines that_serve(const Engines& engines, bool (*serves)(const SearchSpace& space, Scenario& world)) {
  Engines out;
  for (const std::string_view name : engines)
    for (const Framework* framework : frameworks()) {
      if (!framework->search_space()) continue;
      for (const Variant& variant : framework->search_space()->variants()) {
        if (variant.name != name) continue;
        Scenario world;
        variant.apply(world);
        if (serves(*framework->search_space(), world)) out.push_back(name);
      }
    }
  return out;
}

bool scales(const SearchSpace& space, Scenario& world) { return space.tuning().set_loss_scale(world, {.initial = 16, .dynamic = true, .window = 1000}); }
bool clips(const SearchSpace& space, Scenario&) {
  const auto features = space.features();
  return std::any_of(features.begin(), features.end(), [](const FeatureInfo& f) { return f.feature == Feature::clipping; });
}
bool defers(const SearchSpace& space, Scenario& world) {
  space.write_loop({.windows = 1, .micro_batches = 2, .defers = true}, world);
  const auto in_blocks = [](const auto& self, const std::vector<ScriptItem>& items) -> bool {
    return std::any_of(items.begin(), items.end(), [&](const ScriptItem& item) { return item.kind == ScriptKind::no_sync || self(self, item.items); });
  };
  return in_blocks(in_blocks, world.script);
}

const Engines gathering = loop_engines_that([](const EngineTraits& t) { return t.gathers_weights; });

// ---- when -----------------------------------------------------------------------------------------------------------------------------

bool at_clip(const Moment& m) { return m.event && m.event->is<events::ClipGradients>(); }
bool at_own_event(const Moment& m) { return m.event && m.event->is<events::OfFramework>(); }
bool before_the_step(const Moment& m) { return !at_step(m) && !at_clip(m); }

// ---- which ----------------------------------------------------------------------------------------------------------------------------

bool adds_to_a_sum(const Tape& tape, const Op& op) {
  if (deposits(tape, op)) return op.flag != 0;
  return op.kind == accumulate && tape.purpose(op.target) != BufferPurpose::scalars;
}

bool scales_gradients(const Tape& tape, const Op& op) {
  if (op.kind != divide && op.kind != multiply) return false;
  const BufferPurpose purpose = tape.purpose(op.target);
  return purpose == BufferPurpose::buckets || purpose == BufferPurpose::gradients || purpose == BufferPurpose::accumulators || purpose == BufferPurpose::master_gradients;
}

// ---- what becomes of them -------------------------------------------------------------------------------------------------------------

void not_averaged(CollectiveCall& call, const Moment&) {
  if (call.op == ReduceOp::avg || call.op == ReduceOp::premultiplied_sum) call.op = ReduceOp::sum;
}

void averaged_twice(CollectiveCall& call, const Moment& m) {
  if (call.op != ReduceOp::avg) return;
  call.op = ReduceOp::premultiplied_sum;
  call.factor = 1.0 / (m.scenario.world_size * m.scenario.world_size);
}

void divided_by_the_ranks(CollectiveCall& call, const Moment& m) {
  call.op = ReduceOp::premultiplied_sum;
  call.factor = 1.0 / m.scenario.world_size;
}

void zero_grad_unheard(Told& told, const Event& event, const Moment&) {
  if (event.is<events::OptimizerZeroGrad>() || event.is<events::EngineZeroGrad>()) told.now.clear();
}

template <class Body>
void unheard(Told& told, const Event& event, const Moment&) {
  if (event.is<Body>()) told.now.clear();
}

template <class... Bodies>
void unheard_on_a_rank(Told& told, const Event& event, const Moment& m) {
  if (m.rank == 1 && (event.is<Bodies>() || ...)) told.now.clear();
}

// ---- what a case must have ------------------------------------------------------------------------------------------------------------

void deferring(Scenario& s) {
  several_ranks(s);
  s.after_error = AfterError::stop;
  search_space_of(s).write_loop({.windows = 3, .micro_batches = 4, .defers = true}, s);
}

// Each window is one micro-batch, reduced.
void one_of_each(Scenario& s) {
  several_ranks(s);
  search_space_of(s).write_loop({.windows = 3, .micro_batches = 1}, s);
}

// Two experts on two ranks each, beside a parameter of all four.
void with_experts(Scenario& s) {
  s.world_size = 4;
  s.groups.clear();
  s.engine.param_groups.clear();
  s.engine.pipeline_stages = 1;
  s.engine.expert_parallel_size = 2;
  const auto of = [](const char* name, std::optional<std::uint32_t> expert) {
    Parameter out;
    out.name = name;
    out.numel = 16;
    out.expert = expert;
    return out;
  };
  s.parameters = {of("p0", std::nullopt), of("expert0", 0), of("expert1", 1)};
  several_micro_batches(s);
}

// fp32 where a loop has a GradScaler, fp16 where the framework scales.
void scaled(Scenario& s) {
  several_micro_batches(s);
  tuning_of(s).set_model_dtype(s, reduces_every_backward(s) ? Dtype::float32 : Dtype::float16);
  tuning_of(s).set_loss_scale(s, {.initial = 16, .dynamic = true, .window = 1000});
}

// In the second of three windows.
void poisoned(Scenario& s) {
  scaled(s);
  ScriptItem window = s.script.front(), with_overflow;
  window.times = 1;
  with_overflow = window;
  ScriptItem overflow = loop_item(ScriptKind::overflow);
  overflow.ranks = {1};
  overflow.micro_batch = 1;
  with_overflow.items.insert(with_overflow.items.end() - 1, overflow);
  s.script = {window, with_overflow, window};
}

void clipped_by_the_loop(Scenario& s) {
  several_micro_batches(s);
  tuning_of(s).set_model_dtype(s, Dtype::float32);
  ScriptItem clip = loop_item(ScriptKind::clip);
  clip.max_norm = 1.0 / 64;
  s.contract.clip.emplace();
  std::vector<ScriptItem>& window = s.script.front().items;
  window.insert(window.end() - 1, clip);
}

// Two ranks that share the model, twice: a weight that is cut, a norm of whose gradient each has a term, and a copy.
void with_tensor_parallel_ranks(Scenario& s) {
  const SearchSpace& space = search_space_of(s);
  const std::string name = space.variant_of(s);
  Scenario plain;
  for (const Variant& variant : space.variants())
    if (variant.name == name) variant.apply(plain);
  plain.engine.as_of = s.engine.as_of;
  s.engine = plain.engine;
  s.contract = {};
  s.tokens = {};
  s.script.clear();
  s.groups.clear();
  s.world_size = 4;
  s.layout = RankLayout::of("", {{"tp", 2}}, 4).value();
  Parameter column, norm;
  column.name = "column";
  column.numel = 12;
  norm.name = "norm";
  norm.numel = 8;
  Parameter copy = norm;
  copy.name = "copy";
  norm.summed_over = "tp";
  s.parameters.clear();
  for (std::uint32_t number = 0; number < 2; ++number) {
    column.part = ParameterPart{"tp", number, 2};
    s.parameters.push_back(column);
  }
  s.parameters.push_back(norm);
  s.parameters.push_back(copy);
  several_micro_batches(s);
}

void clipped_by_tensor_parallel_ranks(Scenario& s) {
  with_tensor_parallel_ranks(s);
  clipped_by_the_loop(s);
}

void never_summed(Scenario& s, EngineContext&) {
  for (Parameter& p : s.parameters) p.summed_over.clear();
}

// A row a mutant.
// clang-format off
std::vector<Mutant> of_tensor_parallel_ranks() {
  return {
      {"terms-never-summed", "nobody adds up what tensor-parallel ranks have of a gradient", {missing_reduction}, {"ddp", "fsdp2", "fsdp2-offload"}, {.believe = never_summed},
       with_tensor_parallel_ranks},
      {"copies-counted-by-each-rank", "a norm counts what tensor-parallel ranks have alike once for each of them", {wrong_group}, {"fsdp2", "fsdp2-offload"},
       {.edit = edit(at_clip, Take::each, named("norms", of_kind({divide})), dropped)}, clipped_by_tensor_parallel_ranks},
  };
}

std::vector<Mutant> of_reductions() {
  return {
      {"bucket-left-out", "the first bucket of each backward is not reduced", {discarded_gradient, unwritten_memory, missing_reduction, offload_loss}, any,
       {.edit = edit(always, Take::first, reductions, dropped)}, several_micro_batches},
      {"average-left-out", "no collective and no division averages over the ranks", {wrong_scale, duplicated_gradient}, any,
       {.edit = both_edits(edit(before_the_step, Take::each, scales_gradients, dropped), edit(always, Take::each, reductions, called(not_averaged)))}, several_micro_batches},
      {"average-applied-twice", "the average over the ranks is applied twice", {wrong_scale}, any,
       {.edit = both_edits(edit(before_the_step, Take::each, scales_gradients, repeated), edit(always, Take::each, reductions, called(averaged_twice)))}, several_micro_batches},
      {"sum-overwritten", "a micro-batch overwrites the sum of those before it", {discarded_gradient, offload_loss}, any,
       {.edit = edit(at_later_micro_batch, Take::each, adds_to_a_sum, overwriting)}, several_micro_batches},
      {"reductions-unawaited", "what steps does not wait for the reductions", {stream_race}, of_torch,
       {.edit = edit(before_the_step, Take::each, waits_on(Stream::compute), dropped)}, several_micro_batches},
  };
}

std::vector<Mutant> of_loops() {
  return {
      {"zero-grad-unheard", "gradients are not zeroed between a step and the next backward", {stale_gradient, duplicated_gradient}, any, {.tell = zero_grad_unheard}, one_of_each},
      {"no-sync-sum-dropped", "what was added up in no_sync is dropped", {discarded_gradient, offload_loss}, any,
       {.edit = edit(at_inner_micro_batch, Take::each, deposits, zeroed)}, deferring},
      {"no-sync-never-left", "the engine does not hear that no_sync ends", {missing_reduction, boundary_leak, discarded_gradient, engine_error}, that_serve(of_torch, defers),
       {.tell = unheard<events::ExitNoSync>}, deferring},
      {"no-sync-unheard-on-a-rank", "one rank reduces what the others leave in no_sync", {deadlock, collective_mismatch}, that_serve(of_torch, defers),
       {.tell = unheard_on_a_rank<events::EnterNoSync, events::ExitNoSync>}, deferring},
      {"finalize-forgotten", "finalize_model_grads does nothing", {missing_reduction, boundary_leak, discarded_gradient}, finalized,
       {.tell = unheard<events::OfFramework>}, several_micro_batches},
      {"finalize-forgotten-on-a-rank", "one rank leaves out finalize_model_grads", {deadlock, collective_mismatch}, finalized,
       {.tell = unheard_on_a_rank<events::OfFramework>}, several_micro_batches},
      {"experts-reduced-with-all", "gradients of experts are reduced over all ranks instead of those that have them", {collective_mismatch, misplaced_shard, deadlock, wrong_group},
       finalized, {.edit = edit(always, Take::each, reductions, called([](CollectiveCall& c, const Moment&) { c.group = 0; }))}, with_experts},
      {"finalize-scales-again", "finalize_model_grads divides by the ranks, which was done", {wrong_scale}, finalized,
       {.edit = edit(at_own_event, Take::each, reductions, called(divided_by_the_ranks))},
       several_micro_batches},
  };
}

std::vector<Mutant> of_scalers() {
  return {
      {"found-inf-ignored", "a step is taken although gradients have an infinity", {nonfinite_missed}, that_serve(any, scales),
       {.value = [](double value, const Moment&) { return value == 1.0 ? 0.0 : value; }}, poisoned},
      {"found-inf-unseen", "the scaler does not look at the gradients", {nonfinite_missed}, that_serve(any, scales), {.edit = edit(always, Take::each, of_kind({check_finite}), dropped)}, poisoned},
      {"found-inf-private", "ranks do not tell each other of an infinity in their shards", {wrong_skip, nonfinite_missed}, that_serve(cutting, scales),
       {.edit = edit(always, Take::each, collectives(Purpose::overflow), dropped)}, poisoned},
      {"scale-left-in", "the loss scale stays in the gradients", {wrong_scale}, that_serve(any, scales),
       {.edit = edit(at_step, Take::each, scales_gradients, dropped)}, scaled},
      {"scale-taken-out-twice", "a scaler takes its scale out of the gradients twice", {wrong_scale}, that_serve(any, scales),
       {.edit = edit(at_step, Take::each, scales_gradients, repeated)}, scaled},
      {"loop-norm-of-a-shard", "each rank of a sharded model clips by the norm of its own shards", {wrong_norm}, that_serve(sharding, clips),
       {.edit = edit(at_clip, Take::each, collectives(Purpose::user), dropped)}, clipped_by_the_loop},
  };
}
// clang-format on

// Mutants of the other parts that these engines can have as well. What they need of a counter, of a boundary or of a loss scale of the framework's own
// has no place in them; for what is reached in another way there are rows of their own above.
struct Also {
  const Engines* engines;
  std::vector<std::string_view> mutants;
};

const std::vector<Also>& also() {
  static const std::vector<Also> rows{
      {&any,
       {"micro-batch-lost",
        "micro-batch-lost-on-a-rank",
        "parameter-lost",
        "hook-before-gradient",
        "gradient-deposited-twice",
        "gradients-swapped",
        "gradient-rounded-to-bf16",
        "step-ignored",
        "reduction-short",
        "reduction-short-on-a-rank",
        "other-collective-on-a-rank",
        "collective-skipped-on-a-rank",

        "reduction-does-not-wait",
        "waits-one-operation-late",
        "recorded-too-early",
        "gradient-on-a-stream-of-its-own",
        "update-on-a-stream-of-its-own",
        "gradient-released-too-early",
        "first-moment-frozen",
        "moments-swapped",
        "bias-not-corrected",
        "step-number-ahead",
        "weight-decay-lost",
        "weight-decay-in-the-gradient",
        "learning-rate-doubled",
        "update-skipped-on-a-rank",
        "update-repeated",
        "update-short"}},
      {&dividing, {"average-of-an-average"}},
      {&of_torch, {"zeroed-too-late", "collectives-out-of-order-on-a-rank"}},
      {&accumulating, {"accumulation-overwrites", "accumulation-lost", "accumulation-twice", "accumulation-shifted", "accumulation-short", "accumulator-rounded-to-bf16"}},
      {&in_place, {"sum-skipped", "reduction-repeated", "reduction-starts-late"}},
      {&sharding, {"bucket-not-filled", "bucket-filled-out-of-place", "bucket-released-too-early"}},
      {&offloading, {"copies-on-a-stream-of-their-own"}},
      {&finalized,
       {"accumulates-in-model-dtype", "reduces-over-the-world", "norm-read-too-early", "clipping-skipped", "clipping-repeated", "norm-of-a-short-slice", "norm-without-root",
        "clips-by-twice-the-norm", "skips-without-overflow", "one-rank-skips", "step-before-its-gradient", "weights-not-stored", "weights-stored-too-early",
        "master-gradient-shifted", "master-gradient-short"}},
      {&gathering, {"scattered-to-the-neighbour", "last-collective-skipped-on-a-rank", "weights-not-gathered", "norm-not-summed", "norm-averaged", "weights-stored-out-of-place"}},
  };
  return rows;
}

}  // namespace

std::vector<Mutant> loop_mutants() {
  std::vector<Mutant> out = of_reductions();
  for (const auto part : {of_loops, of_scalers, of_tensor_parallel_ranks})
    for (Mutant& mutant : part()) out.push_back(std::move(mutant));
  return out;
}

void add_loop_engines(std::vector<Mutant>& mutants) {
  for (const Also& row : also())
    for (const std::string_view name : row.mutants) {
      const auto at = std::find_if(mutants.begin(), mutants.end(), [&](const Mutant& m) { return m.name == name; });
      expects(at != mutants.end(), "a mutant that loops have as well is one of the catalogue");
      at->variants.insert(at->variants.end(), row.engines->begin(), row.engines->end());
    }
}

}  // namespace gradledger::search
