#include "ref/naming/naming.h"

#include <set>
#include <tuple>

#include <fmt/format.h>

#include "ref/describe.h"

namespace gradledger::ref {

// Wrong sums entail wrong values, and different ones on different ranks; wrong values entail neither.
// What an exception leaves is behind it.
bool Naming::explained(std::uint32_t step, std::uint32_t event) const {
  return std::any_of(verdict_.findings.begin(), verdict_.findings.end(), [&](const Finding& f) {
    return f.step <= step && f.finding != FindingClass::rounding_excess && f.finding != FindingClass::rank_divergence &&
           (f.finding != FindingClass::engine_error || f.event <= event);
  });
}

// Gradients that few runs find wrong, and do not tell how: what follows from them has no name of its own.
bool Naming::left_open(std::uint32_t first_step, std::uint32_t last_step) const {
  const auto between = [&](const SnapshotKey& key) { return first_step <= timeline_.events[key.event].step && timeline_.events[key.event].step <= last_step; };
  return verdict_.few_runs && std::any_of(verdict_.unexplained.begin(), verdict_.unexplained.end(), between);
}

bool Naming::left_open(const SnapshotKey& key) const { return std::find(verdict_.unexplained.begin(), verdict_.unexplained.end(), key) != verdict_.unexplained.end(); }

void Naming::name_coverage() {
  if (verdict_.facts.stopped()) return;
  for (const auto& [event, elements] : evidence_.not_applied) {
    const std::uint32_t step = timeline_.events[event].step;
    std::vector<Miscounted> missing;
    for (const std::uint32_t b : timeline_.backwards_of(step, Layer::meant))
      for (std::uint32_t r = 0; r < workload_.world_size; ++r)
        if (timeline_.backwards[b].micro_batch[r] != no_contribution && timeline_.dropped_at[b][r] == never)
          missing.push_back({timeline_.contribution(b, r), timeline_.averaged_weight(b, r, r, Layer::meant), 0.0});
    if (missing.empty() || decided(step)) continue;
    // Values may be out of range where they are skipped; the run on probes has none that is.
    const bool skipped = evidence_.skipped.contains(event);
    Finding& finding = add(skipped ? FindingClass::wrong_skip : FindingClass::discarded_gradient, event, 0);
    finding.buffer = "nothing";
    finding.role = Role::applied_gradient;
    finding.elements = elements;
    finding.contributions = std::move(missing);
    finding.lost_weight = 1;
    finding.sentence = fmt::format("{}: {} must update, but {}no rank applies a gradient to {}; {} stay out.", name_of(finding.finding), timeline_.describe(event),
                                   skipped ? "every rank skips it, and in a run on probes that every format has room for " : "", elements_text(workload_, elements),
                                   contributions_text(finding.contributions, step));
  }
  for (const auto& [event, elements] : evidence_.not_reduced) {
    const std::uint32_t step = timeline_.events[event].step;
    if (explained(step)) continue;
    Finding& finding = add(FindingClass::missing_reduction, event, 0);
    finding.elements = elements;
    finding.sentence = fmt::format("missing-reduction: after {}, a gradient accumulation boundary, no rank holds a reduced gradient of {}.", timeline_.describe(event),
                                   elements_text(workload_, elements));
  }
}

void Naming::name_values() {
  std::vector<const Mismatch*> all;
  for (const Mismatch& mismatch : evidence_.values) all.push_back(&mismatch);
  for (const Mismatch& mismatch : evidence_.parameters) all.push_back(&mismatch);
  std::set<SnapshotKey> behind;  // findings of earlier windows, which explain their values and not their weights
  for (const Mismatch* mismatch : all) {
    const bool update = !holds_gradients(mismatch->role);
    const bool known = explained(mismatch->step, mismatch->key.event);
    const bool in_its_window = found_in(mismatch->step, [](const Finding&) { return true; });
    if (!update && verdict_.few_runs && known && !in_its_window && left_open(mismatch->key)) behind.insert(mismatch->key);
    if ((!update && (known || mismatch->clipping)) || races_before(mismatch->step)) continue;
    if (Finding* same = find(FindingClass::rounding_excess, timeline_.events[mismatch->key.event].step, mismatch->key.rank)) {
      also_in(*same, mismatch->key.buffer);
      continue;
    }
    Finding& finding = add(FindingClass::rounding_excess, mismatch->key.event, mismatch->key.rank);
    finding.buffer = mismatch->key.buffer;
    finding.role = mismatch->role;
    finding.elements = mismatch->ranges;
    finding.worst = mismatch->worst;
    const WorstElement& worst = mismatch->worst;
    finding.sentence = fmt::format("rounding-excess: rank {}, {}, {}: element {} of {} is {:.9g}, {} is {:.9g}, and rounding explains at most {:.3g} of the {:.3g} between them{}.",
                                   finding.rank, timeline_.describe(finding.event), finding.buffer, worst.element, workload_.parameters[worst.parameter].name, worst.observed,
                                   update ? "the update of the applied gradient" : "the reference", worst.expected, worst.bound, worst.error(), open_text(mismatch->key));
  }
  if (!behind.empty())
    verdict_.left_out.push_back(fmt::format("{} of a later window, whose values are wrong too: which contributions weigh wrong, these few runs leave open",
                                            behind.size() == 1 ? "a snapshot" : fmt::format("{} snapshots", behind.size())));
}

// Of a run that is over. In many passes each contribution would have been looked at alone.
std::string Naming::open_text(const SnapshotKey& key) const {
  return left_open(key) ? fmt::format("; which contributions weigh wrong, the values of {} leave open", verdict_.few_runs ? "these few runs" : "one run") : "";
}

void Naming::name_divergences() {
  for (const Divergence& d : evidence_.divergences) {
    const std::uint32_t step = timeline_.events[d.event].step;
    if (explained(step) || left_open(0, step) || first_hidden_ <= step) continue;
    if (Finding* known = find(FindingClass::rank_divergence, step, d.rank)) {
      also_in(*known, d.buffer);
      continue;
    }
    Finding& finding = add(FindingClass::rank_divergence, d.event, d.rank);
    finding.buffer = d.buffer;
    finding.role = d.role;
    finding.elements = {{d.parameter, d.element, d.element + 1}};
    finding.worst = WorstElement{d.parameter, d.element, d.value, d.other_value, 0, d.bits, d.dtype};
    finding.sentence =
        fmt::format("rank-divergence: after {}, ranks {} and {} hold different bits in {} elements of {}, first at element {} of {}: {:.9g} and {:.9g}.",
                    timeline_.describe(d.event), d.rank, d.other_rank, d.elements, d.buffer, d.element, workload_.parameters[d.parameter].name, d.value, d.other_value);
  }
}

}  // namespace gradledger::ref
