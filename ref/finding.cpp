#include "ref/finding.h"

#include <array>
#include <cmath>

namespace gradledger::ref {
namespace {

using enum FindingClass;

constexpr std::array<FindingClassInfo, 20> classes{{
    {discarded_gradient, "discarded-gradient", "contributions of the window do not reach the step", "weight 0, on the rank that computed them and on all others"},
    {offload_loss, "offload-loss", "contributions are lost on the way through the host accumulator", "weight 0, with the optimizer offloaded to the CPU"},
    {boundary_leak, "boundary-leak", "the boundary micro-batch stays private to its rank",
     "the last micro-batch too heavy on its own rank and 0 on the others; earlier ones right"},
    {stale_gradient, "stale-gradient", "contributions of an earlier window, or dropped by a zero_grad, are still there", "a weight that is not 0 where 0 is due"},
    {duplicated_gradient, "duplicated-gradient", "contributions are counted more than once", "a weight that is a multiple of the right one"},
    {missing_reduction, "missing-reduction", "gradients are not averaged over ranks", "contributions too heavy on their own rank and 0 on the others, in the whole window"},
    {wrong_scale, "wrong-scale", "contributions arrive with a wrong common factor", "every weight off by the same factor"},
    {wrong_group, "wrong-group", "gradients are averaged, or a norm is taken, over other ranks than the contract says",
     "weight from ranks outside of the group, or none from some inside; a norm that is right for another group"},
    {misplaced_shard, "misplaced-shard", "elements hold what belongs to other elements", "ratios that no weight gives, or right sums at shifted places"},
    {rank_divergence, "rank-divergence", "ranks that must agree differ in bits", "unequal bits of replicated elements"},
    {rounding_excess, "rounding-excess", "the ledger balances, but values are further off than rounding explains", "error over its derived bound"},
    {wrong_skip, "wrong-skip", "a step is skipped that must update, or updates where it must be skipped or the loop means no update, or ranks disagree",
     "overflow reported or not, against the window's gradients; an update in the middle of the loop's window"},
    {wrong_norm, "wrong-norm", "a gradient norm that is reported or clips is wrong, or the clipping that follows from it", "norm or clip factor outside its derived bound"},
    {nonfinite_missed, "nonfinite-missed", "an infinity or NaN reaches the weights although the configuration checks, or spreads to finite elements",
     "applied elements that are not finite"},
    {deadlock, "deadlock", "ranks wait for each other for ever", "no rank can go on"},
    {collective_mismatch, "collective-mismatch", "ranks meet in collectives that do not fit", "kind, size, dtype, operator or root differ"},
    {unwritten_memory, "unwritten-memory", "memory that was never written, or was released, is read",
     "memory that nobody wrote reaches a buffer that is shown, a decision or an update"},
    {engine_error, "engine-error", "the framework raises: loud, and here for the record", "an exception of the framework"},
    {stream_race, "stream-race", "two streams of a rank touch the same elements and neither waits for the other", "two accesses, and nothing says which comes first"},
    {surplus_communication, "surplus-communication", "gradients are reduced where the documentation has no reduction",
     "gradient collectives at events that are none of the window's reductions"},
}};

}  // namespace

std::span<const FindingClassInfo> finding_classes() { return classes; }

std::string_view name_of(FindingClass finding) { return classes[static_cast<std::size_t>(finding)].name; }

std::optional<FindingClass> finding_class_named(std::string_view name) {
  for (const FindingClassInfo& info : classes)
    if (info.name == name) return info.finding;
  return std::nullopt;
}

std::string_view name_of(Whose whose) { return whose == Whose::usage ? "usage" : "framework"; }

double WorstElement::error() const { return std::abs(observed - expected); }

}  // namespace gradledger::ref
