#include "ref/oracle.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "ref/classify.h"
#include "ref/describe.h"
#include "ref/passes.h"

namespace gradledger::ref {
namespace {

// Turns evidence into findings, each with a name, a place and its contributions.
class Naming {
 public:
  Naming(const Workload& workload, const Timeline& timeline, Evidence& evidence, Ledger& ledger, Verdict& verdict)
      : workload_(workload), timeline_(timeline), evidence_(evidence), ledger_(ledger), verdict_(verdict), skipped_(windows_to_skip(timeline)) {}

  void run() {
    verdict_.facts = std::move(evidence_.facts);
    name_structural();
    name_steps(false);
    for (const auto& [key, entry] : ledger_.entries())
      if (!entry.columns.empty()) name_entry(entry);
    name_coverage();
    name_values();
    name_steps(true);
    name_clipping();
    name_divergences();
    for (Finding& finding : verdict_.findings)
      if (finding.sentence.empty()) finding.sentence = sentence_of(finding, workload_, timeline_);
    std::stable_sort(verdict_.findings.begin(), verdict_.findings.end(), [](const Finding& a, const Finding& b) {
      return std::tie(a.step, a.first_event, a.finding, a.rank) < std::tie(b.step, b.first_event, b.finding, b.rank);
    });
    list_applied();
    for (const auto* mismatches : {&evidence_.fingerprint, &evidence_.values, &evidence_.parameters})
      for (const Mismatch& mismatch : *mismatches) verdict_.unbalanced.push_back(mismatch.key);
    std::sort(verdict_.unbalanced.begin(), verdict_.unbalanced.end());
    verdict_.unbalanced.erase(std::unique(verdict_.unbalanced.begin(), verdict_.unbalanced.end()), verdict_.unbalanced.end());
  }

 private:
  // ---- what stops or poisons a run ------------------------------------------------------------------------------------------------

  Finding& add(FindingClass finding, std::uint32_t event, std::uint32_t rank) {
    Finding out;
    out.finding = finding;
    out.event = out.first_event = event;
    out.step = timeline_.events.empty() ? 0 : timeline_.events[event].step;
    out.rank = rank;
    return verdict_.findings.emplace_back(std::move(out));
  }

  Finding* find(FindingClass finding, std::uint32_t step, std::uint32_t rank) {
    for (Finding& known : verdict_.findings)
      if (known.finding == finding && known.step == step && known.rank == rank) return &known;
    return nullptr;
  }

  static void also_in(Finding& finding, const std::string& buffer) {
    if (finding.buffer != buffer && std::find(finding.also_in.begin(), finding.also_in.end(), buffer) == finding.also_in.end()) finding.also_in.push_back(buffer);
  }

  void name_structural() {
    const RunFacts& facts = verdict_.facts;
    for (const EngineErrorRecord& error : facts.engine_errors)
      add(FindingClass::engine_error, error.event, error.rank).sentence =
          fmt::format("engine-error: rank {} raises {} ({}) at {}.", error.rank, error.type, error.message, timeline_.describe(error.event));
    if (facts.mismatch) {
      std::string calls;
      for (const CollectiveRecord& call : facts.mismatch->calls)
        calls += fmt::format("{}rank {} calls {} at event {}", calls.empty() ? "" : "; ", call.rank, call.text(), call.event);
      const CollectiveRecord& first = facts.mismatch->calls.front();
      add(FindingClass::collective_mismatch, first.event, first.rank).sentence =
          fmt::format("collective-mismatch: collective {} differs in {}: {}.", first.sequence, facts.mismatch->what, calls);
    }
    if (facts.deadlock) name_deadlock(*facts.deadlock);
    for (const RaceRecord& race : facts.races) name_race(race);
    for (const UnwrittenRecord& record : facts.unwritten) {
      if (races_before(timeline_.events[record.event].step)) continue;
      Finding& finding = add(FindingClass::unwritten_memory, record.event, record.rank);
      finding.buffer = record.buffer;
      finding.sentence = fmt::format("unwritten-memory: rank {}, {}: {} reads {}[{}:{}], which was {}.", record.rank, timeline_.describe(record.event),
                                     record.reader, record.buffer, record.begin, record.end, record.released ? "released" : "never written");
    }
  }

  void name_race(const RaceRecord& record) {
    if (Finding* known = find(FindingClass::stream_race, timeline_.events[record.event].step, record.rank)) {
      ++known->race->others;
      return also_in(*known, record.buffer);
    }
    Finding& finding = add(FindingClass::stream_race, record.event, record.rank);
    finding.buffer = record.buffer;
    finding.race = Race{record, 0, evidence_.race_seed, evidence_.race_schedules};
    finding.sentence = race_text(*finding.race, timeline_);
  }

  // From here on anything may follow from the race in this schedule.
  bool races_before(std::uint32_t step) const {
    return std::any_of(verdict_.findings.begin(), verdict_.findings.end(), [&](const Finding& f) { return f.race && f.step <= step; });
  }

  void name_deadlock(const DeadlockRecord& deadlock) {
    std::string ranks;
    const WaitingRank* first = nullptr;
    for (const WaitingRank& waiting : deadlock.ranks) {
      ranks += ranks.empty() ? "" : "; ";
      if (waiting.collective) {
        ranks += fmt::format("rank {} waits in {} since event {}", waiting.rank, waiting.collective->text(), waiting.event);
        if (!first) first = &waiting;
      } else {
        ranks += fmt::format("rank {} {} at event {}", waiting.rank, waiting.finished ? "ended" : "stands", waiting.event);
      }
    }
    const WaitingRank& at = first ? *first : deadlock.ranks.front();
    add(FindingClass::deadlock, at.event, at.rank).sentence = fmt::format("deadlock: {}.", ranks);
  }

  // ---- rows that do not balance ---------------------------------------------------------------------------------------------------

  RowContext context_of(const LedgerEntry& entry) const {
    RowContext context;
    context.full_weight = timeline_.contract.local_weight();
    context.averaged_weight = timeline_.contract.averaged_weight();
    context.rank = entry.key.rank;
    context.step = entry.step;
    context.world = workload_.world_size;
    context.local = entry.role == Role::local_accumulator;
    context.host_accumulator = verdict_.facts.host_gradients[entry.key.rank];
    context.tolerance = ledger_.tolerance();
    const auto gradient = verdict_.facts.collectives.find("gradient");
    if (gradient != verdict_.facts.collectives.end() && entry.step < gradient->second[entry.key.rank].size())
      context.reduced = gradient->second[entry.key.rank][entry.step] > 0;
    return context;
  }

  void name_entry(const LedgerEntry& entry) {
    if (entry.role == Role::applied_gradient && skipped_[entry.step]) return;  // that it was applied at all is the finding
    const RowContext context = context_of(entry);
    bool balanced = true;
    for (const LedgerRow& row : ledger_.rows(entry)) {
      verdict_.inconclusive_rows += row.inconclusive;
      if (!timeline_.planted.empty()) balanced = balanced && !row.inconclusive;
      for (Diagnosis& diagnosis : diagnose(row, entry.columns, context)) {
        balanced = false;
        record(entry, row, std::move(diagnosis));
      }
    }
    // The fingerprint differs, yet each contribution alone weighs what it must: the right sums lie in the wrong places.
    if (balanced && verdict_.undecoded == 0 && fingerprint_of(entry.key))
      record(entry, {fingerprint_of(entry.key)->ranges, {}, {}, false}, {FindingClass::misplaced_shard, {}});
  }

  const Mismatch* fingerprint_of(const SnapshotKey& key) const {
    for (const Mismatch& mismatch : evidence_.fingerprint)
      if (mismatch.key == key && mismatch.wrong_elements > 0) return &mismatch;
    return nullptr;
  }

  void record(const LedgerEntry& entry, const LedgerRow& row, Diagnosis diagnosis) {
    Finding* finding = find(diagnosis.finding, entry.step, entry.key.rank);
    if (finding && (finding->buffer != entry.key.buffer || finding->event != entry.key.event)) {
      also_in(*finding, entry.key.buffer);
      // The applied gradient has the last word on what was lost.
      if (entry.role != Role::applied_gradient || finding->role == Role::applied_gradient) return;
    }
    if (!finding) {
      finding = &add(diagnosis.finding, entry.key.event, entry.key.rank);
      finding->first_event = first_event_of(entry);
    }
    if (finding->role != entry.role || finding->buffer != entry.key.buffer) {
      finding->elements.clear();
      finding->contributions.clear();
      finding->lost_weight = finding->excess_weight = 0;
    }
    finding->step = entry.step;
    finding->event = entry.key.event;
    finding->buffer = entry.key.buffer;
    finding->role = entry.role;
    finding->elements.insert(finding->elements.end(), row.elements.begin(), row.elements.end());
    for (const Miscounted& m : diagnosis.contributions)
      if (std::none_of(finding->contributions.begin(), finding->contributions.end(), [&](const Miscounted& k) { return k.contribution == m.contribution; }))
        finding->contributions.push_back(m);
    weigh(*finding, row, diagnosis.contributions);
    if (const Mismatch* mismatch = fingerprint_of(entry.key)) finding->worst = mismatch->worst;
    const auto in_values = std::find_if(evidence_.values.begin(), evidence_.values.end(), [&](const Mismatch& m) { return m.key == entry.key; });
    if (in_values != evidence_.values.end()) finding->worst = in_values->worst;
  }

  static void weigh(Finding& finding, const LedgerRow& row, const std::vector<Miscounted>& contributions) {
    double due = 0, lost = 0, excess = 0;
    for (double expected : row.expected) due += expected;
    for (const Miscounted& m : contributions) {
      lost += std::max(0.0, m.expected - m.observed);
      excess += std::max(0.0, m.observed - m.expected);
    }
    if (due <= 0) return;
    finding.lost_weight = std::max(finding.lost_weight, lost / due);
    finding.excess_weight = std::max(finding.excess_weight, excess / due);
  }

  std::uint32_t first_event_of(const LedgerEntry& entry) const {
    std::uint32_t first = entry.key.event;
    for (const Mismatch& mismatch : evidence_.fingerprint)
      if (mismatch.step == entry.step) first = std::min(first, mismatch.key.event);
    return first;
  }

  // ---- gradients that are nowhere -------------------------------------------------------------------------------------------------

  // Wrong sums entail wrong values, and different ones on different ranks; wrong values entail neither.
  bool explained(std::uint32_t step) const {
    return std::any_of(verdict_.findings.begin(), verdict_.findings.end(), [&](const Finding& f) {
      return f.step <= step && f.finding != FindingClass::rounding_excess && f.finding != FindingClass::rank_divergence;
    });
  }

  void name_coverage() {
    if (verdict_.facts.stopped()) return;
    for (const auto& [event, elements] : evidence_.not_applied) {
      const std::uint32_t step = timeline_.events[event].step;
      std::vector<Miscounted> missing;
      for (std::uint32_t b = 0; b < timeline_.backwards.size(); ++b)
        for (std::uint32_t r = 0; r < workload_.world_size; ++r)
          if (timeline_.backwards[b].step == step && timeline_.backwards[b].micro_batch[r] != no_contribution && timeline_.dropped_at[b][r] == never)
            missing.push_back({timeline_.contribution(b, r), timeline_.contract.averaged_weight(), 0.0});
      if (missing.empty() || decided(step)) continue;
      Finding& finding = add(FindingClass::discarded_gradient, event, 0);
      finding.buffer = "nothing";
      finding.role = Role::applied_gradient;
      finding.elements = elements;
      finding.contributions = std::move(missing);
      finding.lost_weight = 1;
      finding.sentence = fmt::format("discarded-gradient: {} must update, but no rank applies a gradient to {}; {} stay out.", timeline_.describe(event),
                                     elements_text(workload_, elements), contributions_text(finding.contributions, step));
    }
    for (const auto& [event, elements] : evidence_.not_reduced) {
      const std::uint32_t step = timeline_.events[event].step;
      if (explained(step)) continue;
      Finding& finding = add(FindingClass::missing_reduction, event, 0);
      finding.elements = elements;
      finding.sentence = fmt::format("missing-reduction: after {}, a gradient accumulation boundary, no rank holds a reduced gradient of {}.",
                                     timeline_.describe(event), elements_text(workload_, elements));
    }
  }

  // ---- values that rounding does not explain --------------------------------------------------------------------------------------

  void name_values() {
    std::vector<const Mismatch*> all;
    for (const Mismatch& mismatch : evidence_.values) all.push_back(&mismatch);
    for (const Mismatch& mismatch : evidence_.parameters) all.push_back(&mismatch);
    for (const Mismatch* mismatch : all) {
      const bool update = !holds_gradients(mismatch->role);
      if ((!update && (explained(mismatch->step) || mismatch->clipping)) || races_before(mismatch->step)) continue;
      if (Finding* known = find(FindingClass::rounding_excess, timeline_.events[mismatch->key.event].step, mismatch->key.rank)) {
        also_in(*known, mismatch->key.buffer);
        continue;
      }
      Finding& finding = add(FindingClass::rounding_excess, mismatch->key.event, mismatch->key.rank);
      finding.buffer = mismatch->key.buffer;
      finding.role = mismatch->role;
      finding.elements = mismatch->ranges;
      finding.worst = mismatch->worst;
      const WorstElement& worst = mismatch->worst;
      finding.sentence = fmt::format("rounding-excess: rank {}, {}, {}: element {} of {} is {:.9g}, {} is {:.9g}, and rounding explains at most {:.3g} of the {:.3g} between them.",
                                     finding.rank, timeline_.describe(finding.event), finding.buffer, worst.element, workload_.parameters[worst.parameter].name,
                                     worst.observed, update ? "the update of the applied gradient" : "the reference", worst.expected, worst.bound, worst.error());
    }
  }

  // ---- what steps decided -----------------------------------------------------------------------------------------------------------

  bool found_in(std::uint32_t step, auto&& fits) const {
    return std::any_of(verdict_.findings.begin(), verdict_.findings.end(), [&](const Finding& f) { return f.step == step && fits(f); });
  }

  bool decided(std::uint32_t step) const {
    return found_in(step, [](const Finding& f) { return f.finding == FindingClass::wrong_skip || f.finding == FindingClass::nonfinite_missed; });
  }

  // A norm, a factor or a scale follows from the gradients of its window: where these are wrong, it is no finding of its own.
  bool follows(std::uint32_t step) const {
    return found_in(step, [](const Finding& f) {
      return f.finding < FindingClass::rank_divergence || (f.finding == FindingClass::rounding_excess && holds_gradients(f.role)) ||
             f.finding == FindingClass::wrong_skip || f.finding == FindingClass::nonfinite_missed;
    });
  }

  void name_steps(bool after_gradients) {
    for (const StepMismatch& m : evidence_.steps) {
      const bool decision = m.finding == FindingClass::wrong_skip || m.finding == FindingClass::nonfinite_missed;
      const std::uint32_t step = timeline_.events[m.event].step;
      if (decision == after_gradients || races_before(step) || find(m.finding, step, m.rank) || (after_gradients && follows(step))) continue;
      if (m.finding == FindingClass::wrong_scale && explained(step)) continue;
      Finding& finding = add(m.finding, m.event, m.rank);
      finding.quantity = m.quantity;
      finding.elements = m.elements;
      finding.role = Role::applied_gradient;
      finding.sentence = fmt::format("{}: step {}, rank {}, {}: {}.", name_of(m.finding), step, m.rank, timeline_.describe(m.event), m.what);
    }
  }

  void name_clipping() {
    for (const Mismatch& m : evidence_.values) {
      if (!m.clipping || follows(m.step) || explained(m.step) || find(FindingClass::wrong_norm, m.step, m.key.rank)) continue;
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

  void name_divergences() {
    for (const Divergence& d : evidence_.divergences) {
      const std::uint32_t step = timeline_.events[d.event].step;
      if (explained(step)) continue;
      if (Finding* known = find(FindingClass::rank_divergence, step, d.rank)) {
        also_in(*known, d.buffer);
        continue;
      }
      Finding& finding = add(FindingClass::rank_divergence, d.event, d.rank);
      finding.buffer = d.buffer;
      finding.role = d.role;
      finding.elements = {{d.parameter, d.element, d.element + 1}};
      finding.worst = WorstElement{d.parameter, d.element, d.value, d.other_value, 0, d.bits, d.dtype};
      finding.sentence = fmt::format("rank-divergence: after {}, ranks {} and {} hold different bits in {} elements of {}, first at element {} of {}: {:.9g} and {:.9g}.",
                                     timeline_.describe(d.event), d.rank, d.other_rank, d.elements, d.buffer, d.element,
                                     workload_.parameters[d.parameter].name, d.value, d.other_value);
    }
  }

  // ---- the table of applied gradients -----------------------------------------------------------------------------------------------

  void list_applied() {
    for (const SeenSnapshot& seen : evidence_.seen) {
      if (seen.role != Role::applied_gradient) continue;
      const auto decoded = ledger_.entries().find(seen.key);
      if (decoded != ledger_.entries().end() && !decoded->second.columns.empty()) {
        std::vector<Contribution> columns;
        for (const LedgerColumn& column : decoded->second.columns) columns.push_back(column.contribution);
        for (LedgerRow& row : ledger_.rows(decoded->second)) verdict_.applied.push_back({seen.step, seen.key.event, seen.key.rank, seen.key.buffer, columns, std::move(row)});
      } else {
        balanced_row(seen);
      }
    }
    std::stable_sort(verdict_.applied.begin(), verdict_.applied.end(),
                     [](const AppliedRow& a, const AppliedRow& b) { return std::tie(a.step, a.event, a.rank) < std::tie(b.step, b.event, b.rank); });
  }

  // The fingerprint was right in every element: the row is what it must be.
  void balanced_row(const SeenSnapshot& seen) {
    LedgerEntry entry;
    entry.key = seen.key;
    entry.role = seen.role;
    entry.step = seen.step;
    std::map<std::vector<double>, std::vector<ElementRange>> by_row;
    std::vector<Contribution> columns;
    for (std::uint32_t b = 0; b < timeline_.backwards.size(); ++b)
      for (std::uint32_t r = 0; r < workload_.world_size; ++r)
        if (timeline_.backwards[b].step == seen.step && timeline_.backwards[b].micro_batch[r] != no_contribution) columns.push_back(timeline_.contribution(b, r));
    for (const ElementRange& range : seen.layout) {
      std::vector<double> weights;
      for (std::uint32_t b = 0; b < timeline_.backwards.size(); ++b)
        for (std::uint32_t r = 0; r < workload_.world_size; ++r)
          if (timeline_.backwards[b].step == seen.step && timeline_.backwards[b].micro_batch[r] != no_contribution)
            weights.push_back(ledger_.expected(entry, b, r, range.parameter));
      by_row[std::move(weights)].push_back(range);
    }
    for (const auto& [weights, elements] : by_row)
      verdict_.applied.push_back({seen.step, seen.key.event, seen.key.rank, seen.key.buffer, columns, LedgerRow{elements, weights, weights, false}});
  }

  const Workload& workload_;
  const Timeline& timeline_;
  Evidence& evidence_;
  Ledger& ledger_;
  Verdict& verdict_;
  std::vector<bool> skipped_;  // by window
};

}  // namespace

Verdict judge(const Workload& workload, const Timeline& timeline, Producer& producer, const OracleOptions& options) {
  Verdict verdict;
  Passes passes(workload, timeline, producer, options);
  passes.run(verdict);
  Naming(workload, timeline, passes.evidence(), passes.ledger(), verdict).run();
  return verdict;
}

}  // namespace gradledger::ref
