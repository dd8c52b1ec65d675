// Faults of communication hooks of DistributedDataParallel: what is registered in place of the all-reduce of a full bucket.
#include <algorithm>

#include "search/mutants/blocks.h"
#include "search/mutants/catalogue.h"
#include "sim/frameworks/loop_drawing.h"
#include "sim/frameworks/search_space.h"

namespace gradledger::search {
namespace {

using enum ref::FindingClass;
using enum OpKind;

const std::vector<std::string_view> hooked{"ddp"};

// ---- which ----------------------------------------------------------------------------------------------------------------------------

bool compresses(const Tape& tape, const Op& op) { return op.kind == copy && tape.buffer(op.target).name.ends_with(".compressed"); }
bool decompresses(const Tape& tape, const Op& op) { return op.kind == copy && tape.buffer(op.source).name.ends_with(".compressed"); }
Which divides() { return named("buckets", of_kind({divide})); }
bool makes_factors(const Tape& tape, const Op& op) { return op.kind == copy && tape.buffer(op.target).name.starts_with("p_memory_dict"); }
bool reduces_factors(const Tape& tape, const Op& op) { return op.kind == collective && tape.buffer(tape.call(op).input).name.starts_with("p_memory_dict"); }
bool feeds_back(const Tape& tape, const Op& op) { return op.kind == accumulate && tape.buffer(op.source).name.starts_with("error_dict"); }

// ---- what becomes of them -------------------------------------------------------------------------------------------------------------

// The bucket takes the result of the one before it, where both have as many elements.
void result_of_the_bucket_before(Tape& tape, const Moment&) {
  const Op* before = nullptr;
  for (std::size_t at = 0; at < tape.size(); ++at) {
    if (!decompresses(tape, tape[at])) continue;
    if (before && before->source.numel == tape[at].source.numel) {
      tape[at].source = before->source;
      return;
    }
    before = &tape[at];
  }
}

// ---- what a case must have ------------------------------------------------------------------------------------------------------------

void compressed(Scenario& s) {
  several_micro_batches(s);
  tuning_of(s).set_model_dtype(s, Dtype::float32);
  tuning_of(s).set_wire_dtype(s, Dtype::bfloat16);
}

// Two buckets of one size.
void two_compressed_buckets(Scenario& s) {
  compressed(s);
  Parameter one;
  one.numel = 24;
  Parameter other = one;
  one.name = "one";
  other.name = "other";
  s.parameters = {one, other};
  s.engine.param_groups.clear();
  several_micro_batches(s);
  tuning_of(s).limit_buckets(s, 1);
}

// A matrix that is approximated, beside a parameter that is not. The first two reductions are exact.
void approximated_average(Scenario& s) {
  compressed(s);
  Parameter matrix, bias;
  matrix.name = "matrix";
  matrix.numel = 36;
  bias.name = "bias";
  bias.numel = 24;
  s.parameters = {matrix, bias};
  s.engine.param_groups.clear();
  several_micro_batches(s);
  tuning_of(s).approximate(s);
}

}  // namespace

// A row a mutant.
// clang-format off
std::vector<Mutant> hook_mutants() {
  return {
      {"hook-does-not-divide", "a communication hook leaves the division by the ranks out", {wrong_scale, duplicated_gradient}, hooked,
       {.edit = edit(at_backward, Take::each, divides(), dropped)}, compressed},
      {"hook-divides-twice", "a communication hook divides what was divided", {wrong_scale}, hooked, {.edit = edit(at_backward, Take::each, divides(), repeated)}, compressed},
      {"hook-returns-its-input", "a communication hook returns the bucket that it was given, and not what the ranks made of it", {missing_reduction, boundary_leak}, hooked,
       {.edit = edit(at_backward, Take::each, decompresses, dropped)}, compressed},
      {"hook-returns-another-bucket", "a communication hook returns the result of the bucket before", {misplaced_shard}, hooked,
       {.edit = result_of_the_bucket_before}, two_compressed_buckets},
      {"hook-compresses-a-part", "a communication hook compresses all of a bucket but its last element", {unwritten_memory}, hooked,
       {.edit = edit(at_backward, Take::each, compresses, shortened)}, compressed},
      {"hook-decompresses-too-early", "a communication hook takes its result before the ranks have added it up", {discarded_gradient, wrong_scale}, hooked,
       {.edit = edit(at_backward, Take::each, decompresses, before_what_comes_before)}, compressed},
      {"approximation-leaves-a-rank-out", "PowerSGD makes its factors without the gradient of one rank", {discarded_gradient, offload_loss}, hooked,
       {.edit = edit(on_rank(1, at_backward), Take::each, makes_factors, zeroed)}, approximated_average},
      {"approximation-stays-private", "the ranks do not add up the factors of PowerSGD", {discarded_gradient, rank_divergence}, hooked,
       {.edit = edit(at_backward, Take::each, reduces_factors, dropped)}, approximated_average},
      {"error-feedback-lost-on-a-rank", "one rank does not add what PowerSGD left out of its last gradient", {discarded_gradient, stale_gradient, wrong_scale, duplicated_gradient}, hooked,
       {.edit = edit(on_rank(1, at_backward), Take::each, feeds_back, dropped)}, approximated_average},
  };
}
// clang-format on

}  // namespace gradledger::search
