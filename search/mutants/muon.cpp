// Faults of Muon's momentum, which DeepSpeed advances itself: in the reduction, in the boundary's backward or in the step.
#include "search/mutants/blocks.h"
#include "search/mutants/catalogue.h"
#include "sim/frameworks/search_space.h"

namespace gradledger::search {
namespace {

using enum ref::FindingClass;
using enum OpKind;

const std::vector<std::string_view> with_muon{"zero1-muon", "zero2-muon", "zero3-muon"}, keeping_back{"zero1-muon", "zero2-muon"}, sharded{"zero3-muon"};

Which of_momentum(OpKind kind) { return named("momentum_buffer", of_kind({kind})); }

// The scale stays: what the momentum keeps of one that moves is another matter.
void skipped_step(Scenario& s) {
  planted_overflow(s);
  tuning_of(s).set_loss_scale(s, {.initial = 16});
}

// Several matrices of one rank.
void several_matrices(Scenario& s) {
  several_micro_batches(s);
  Parameter matrix;
  matrix.numel = 24;
  s.parameters.clear();
  for (const char* name : {"one", "two", "three", "four", "five"}) {
    matrix.name = name;
    s.parameters.push_back(matrix);
  }
  s.engine.param_groups.clear();
  several_micro_batches(s);
}

}  // namespace

// A row a mutant.
// clang-format off
std::vector<Mutant> muon_mutants() {
  return {
      {"momentum-decay-lost", "the momentum of Muon keeps all that it had", {rounding_excess}, with_muon, {.edit = edit(always, Take::each, of_momentum(multiply), dropped)}, several_micro_batches},
      {"momentum-gradient-lost", "the momentum of Muon takes in nothing", {rounding_excess}, with_muon, {.edit = edit(always, Take::each, of_momentum(accumulate), dropped)}, several_micro_batches},
      {"momentum-gradient-whole", "the momentum of Muon takes in a whole gradient and not its share", {rounding_excess}, with_muon,
       {.edit = edit(always, Take::each, named("share of the momentum", of_kind({multiply})), dropped)}, several_micro_batches},
      {"momentum-not-committed", "the momentum of Muon that waited for its step is not kept", {rounding_excess}, keeping_back,
       {.edit = edit(at_step, Take::each, of_momentum(copy), dropped)}, several_micro_batches},
      {"momentum-advanced-by-a-skipped-step", "a step that is skipped has advanced the momentum of Muon", {wrong_skip}, keeping_back,
       {.believe = has_defect("momentum-advanced-by-a-skipped-step")}, skipped_step},
      {"momentum-of-the-last-matrix", "of several matrices the last alone advances its momentum", {rounding_excess}, keeping_back,
       {.believe = has_defect("momentum-of-the-last-matrix")}, several_matrices},
      {"momentum-of-each-micro-batch", "each micro-batch of a window advances the momentum of Muon", {rounding_excess}, sharded,
       {.believe = has_defect("momentum-of-each-micro-batch")}, several_matrices},
  };
}
// clang-format on

}  // namespace gradledger::search
