#include "ref/naming/naming.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "ref/describe.h"

namespace gradledger::ref {

bool Naming::decided(std::uint32_t step) const {
  return found_in(step, [](const Finding& f) { return f.finding == FindingClass::wrong_skip || f.finding == FindingClass::nonfinite_missed; });
}

bool Naming::gradients_are_named(std::uint32_t step) const {
  return found_in(step, [](const Finding& f) { return is_named_by_weights(f.finding) || f.finding == FindingClass::wrong_skip || f.finding == FindingClass::nonfinite_missed; });
}

// A norm, a factor or a scale follows from the gradients of its window: where these are wrong, it is no finding of its own. They may be wrong without one of
// their own, behind a window that has one.
bool Naming::follows(std::uint32_t step) const {
  const auto off = [&](const Mismatch& m) { return m.step == step && holds_gradients(m.role) && !m.clipping; };
  if (std::any_of(evidence_.values.begin(), evidence_.values.end(), off)) return true;
  return gradients_are_named(step) || found_in(step, [](const Finding& f) { return f.finding == FindingClass::rounding_excess && holds_gradients(f.role); });
}

// Values that are off by some rounding move a norm no further than the norm of what they are off by, by the triangle inequality: errors of n ranks that are
// added up have at most sqrt(n) times the norm of all of them.
bool Naming::follows(const StepMismatch& mismatch) const {
  const std::uint32_t step = timeline_.events[mismatch.event].step;
  // By how much these are off, shows behind the clipping alone, and the norm is of what came before it.
  if (left_open(step, step)) return true;
  if (mismatch.finding != FindingClass::wrong_norm || !mismatch.quantity || gradients_are_named(step)) return follows(step);
  double squares = 0;
  for (const Mismatch& m : evidence_.values)
    if (m.step == step && holds_gradients(m.role) && !m.clipping) squares += m.squared_errors;
  const Quantity& norm = *mismatch.quantity;
  const double off = std::abs(norm.observed - norm.due) - norm.bound;
  return (std::isnan(off) ? HUGE_VAL : off) <= std::sqrt(workload_.world_size * squares);
}

void Naming::name_steps(bool after_gradients) {
  for (const StepMismatch& m : evidence_.steps) {
    const bool decision = m.finding == FindingClass::wrong_skip || m.finding == FindingClass::nonfinite_missed;
    const std::uint32_t step = timeline_.events[m.event].step;
    if (decision == after_gradients || races_before(step) || find(m.finding, step, m.rank) || (after_gradients && follows(m))) continue;
    if (m.finding == FindingClass::wrong_scale && explained(step)) continue;
    Finding& finding = add(m.finding, m.event, m.rank);
    finding.quantity = m.quantity;
    finding.elements = m.elements;
    finding.role = Role::applied_gradient;
    finding.sentence = fmt::format("{}: step {}, rank {}, {}: {}.", name_of(m.finding), step, m.rank, timeline_.describe(m.event), m.what);
  }
}

void Naming::name_clipping() {
  for (const Mismatch& m : evidence_.values) {
    if (!m.clipping || follows(m.step) || explained(m.step) || left_open(0, m.step) || find(FindingClass::wrong_norm, m.step, m.key.rank)) continue;
    Finding& finding = add(FindingClass::wrong_norm, m.key.event, m.key.rank);
    finding.quantity = m.clipping;
    finding.buffer = m.key.buffer;
    finding.role = m.role;
    finding.elements = m.ranges;
    finding.worst = m.worst;
    finding.sentence = fmt::format("wrong-norm: step {}, rank {}, {}: the applied gradient is {:.9g} times the true one in every element; clipping to {} makes that {:.9g}.",
                                   m.step, m.key.rank, timeline_.describe(m.key.event), m.clipping->observed, timeline_.contract.clip.max_norm, m.clipping->due);
  }
}

}  // namespace gradledger::ref
