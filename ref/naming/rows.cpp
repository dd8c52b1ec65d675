#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "ref/naming/naming.h"
#include "ref/normalisation.h"

namespace gradledger::ref {

RowContext Naming::context_of(const LedgerEntry& entry) const {
  RowContext context;
  context.documented = entry.role != Role::applied_gradient;
  context.average_divisor = value_of(timeline_.contract.average_divisor);
  context.wide = ledger_.wide();
  context.places_told = (verdict_.few_runs && !entry.out_of_place) || verdict_.weights;
  context.rank = entry.key.rank;
  context.step = entry.step;
  context.world = workload_.world_size;
  context.local = entry.role == Role::local_accumulator ||
                  (entry.role == Role::replicated_accumulator && timeline_.reduction_before(entry.key.event + 1, timeline_.events[entry.key.event].documented) == never);
  context.host_accumulator = verdict_.facts.host_gradients[entry.key.rank];
  context.tolerance = ledger_.tolerance();
  if (timeline_.two_layers && entry.role == Role::applied_gradient) context.normalisations = known_normalisations(workload_, timeline_, entry);
  const Layer layer = entry.role == Role::applied_gradient ? Layer::meant : Layer::documented;
  for (const std::uint32_t number : timeline_.backwards_of(entry.step, layer))
    if (const Backward& b = timeline_.backwards[number]; b.boundary && b.micro_batch[entry.key.rank] != no_contribution) context.boundary.insert(b.micro_batch[entry.key.rank]);
  const auto gradient = verdict_.facts.collectives.find("gradient");
  if (gradient != verdict_.facts.collectives.end() && entry.step < gradient->second[entry.key.rank].size()) context.reduced = gradient->second[entry.key.rank][entry.step] > 0;
  return context;
}

// Ranks with different numbers of micro-batches meet in collectives of different ones; that they then do not fit is the finding.
bool Naming::follows_unequal_loops(std::uint32_t step) const {
  if (step >= timeline_.micro_batches.size()) return false;  // behind the last window
  const std::vector<std::uint32_t>& counts = timeline_.micro_batches[step];
  if (std::equal(counts.begin() + 1, counts.end(), counts.begin())) return false;
  return found_in(step, [](const Finding& f) { return f.finding == FindingClass::collective_mismatch || f.finding == FindingClass::deadlock; });
}

// What memory holds that nobody wrote is no weight of a contribution; that it was read is the finding.
bool Naming::follows_unwritten(const LedgerEntry& entry, const LedgerRow& row) const {
  const auto read_before = [&](const UnwrittenRecord& record) { return record.event <= entry.key.event; };  // on any rank: collectives spread it
  return std::any_of(row.observed.begin(), row.observed.end(), [](double weight) { return std::isnan(weight); }) &&
         std::any_of(verdict_.facts.unwritten.begin(), verdict_.facts.unwritten.end(), read_before);
}

void Naming::name_entry(const LedgerEntry& entry) {
  if (entry.role == Role::applied_gradient && skipped_[entry.step]) return;   // that it was applied at all is the finding
  if (entry.role == Role::applied_gradient && cut_short(entry.step)) return;  // likewise, before its window was over
  if (follows_unequal_loops(entry.step)) return;
  RowContext context = context_of(entry);
  std::vector<LedgerRow> rows = ledger_.rows(entry);
  for (LedgerRow& row : rows) {
    if (!verdict_.few_runs) row.open.clear();  // of the one run of a recording an open weight is taken for right
    // A misplaced weight has a class of its own; the others are diagnosed without it.
    for (std::size_t k = 0; k < row.misplaced.size(); ++k)
      if (row.misplaced[k]) row.observed[k] = row.expected[k];
  }
  context.one_factor = off_by_one_factor(rows, entry.columns, entry.step);
  bool balanced = true;
  for (const LedgerRow& row : rows) {
    if (row.inconclusive) ++verdict_.inconclusive_rows.by_reason[static_cast<std::size_t>(*row.inconclusive)];
    if (row.inconclusive == NotTold::not_finite || row.inconclusive == NotTold::symbolic) first_hidden_ = std::min(first_hidden_, entry.step);
    const bool hidden = row.inconclusive == NotTold::not_finite || !timeline_.planted.empty();
    if (verdict_.one_pass || verdict_.few_runs || hidden) balanced = balanced && !row.inconclusive;
    if (row.any_misplaced()) {
      balanced = false;
      record(entry, row, {FindingClass::misplaced_shard, {}, {}});
    }
    // Of a gradient that ranks share, the rank's own contribution may be another's, and the sum over them has a divisor of its own.
    const std::uint32_t p = row.elements.front().parameter;
    context.rank = timeline_.contract.contributor(entry.key.rank, p);
    context.average_divisor = value_of(timeline_.contract.average_divisor * timeline_.contract.share_divisor(p));
    context.share = timeline_.contract.share(p);
    if (context.share && context.share->copies) context.share = nullptr;
    if (follows_unwritten(entry, row)) {
      balanced = false;
      continue;
    }
    for (const Diagnosis& diagnosis : diagnose(row, entry.columns, context)) {
      balanced = false;
      record(entry, row, diagnosis);
    }
  }
  // The fingerprint differs, yet each contribution alone weighs what it must: the right sums lie in the wrong places. Few runs look at none alone.
  if (balanced && !context.places_told && verdict_.undecoded == 0 && fingerprint_of(entry.key))
    record(entry, {fingerprint_of(entry.key)->ranges, {}, {}}, {FindingClass::misplaced_shard, {}, {}});
}

// Mismatches are sorted by key, of which there may be several.
const Mismatch* Naming::fingerprint_of(const SnapshotKey& key) const {
  const std::vector<Mismatch>& all = evidence_.fingerprint;
  for (auto at = std::lower_bound(all.begin(), all.end(), key, [](const Mismatch&m, const SnapshotKey&k) { return m.key < k; }); at != all.end() && at->key == key; ++at)
    if (at->wrong_elements > 0) return &*at;
  return nullptr;
}

void Naming::record(const LedgerEntry& entry, const LedgerRow& row, const Diagnosis& diagnosis) {
  Finding* finding = find(diagnosis.finding, entry.step, entry.key.rank);
  if (finding && (finding->buffer != entry.key.buffer || finding->event != entry.key.event)) {
    also_in(*finding, entry.key.buffer);
    // The applied gradient has the last word on what was lost.
    if (entry.role != Role::applied_gradient || finding->role == Role::applied_gradient) return;
  }
  if (!finding) {
    finding = &add(diagnosis.finding, entry.key.event, entry.key.rank, entry.step);
    finding->first_event = first_event_of(entry);
  }
  if (finding->role != entry.role || finding->buffer != entry.key.buffer) {
    finding->elements.clear();
    finding->contributions.clear();
    finding->lost_weight = finding->excess_weight = 0;
    finding->varies = false;
    finding->alike.clear();
    finding->open.clear();
  }
  if (!finding->elements.empty() && finding->contributions != diagnosis.contributions) finding->varies = true;
  finding->event = entry.key.event;
  finding->buffer = entry.key.buffer;
  finding->role = entry.role;
  finding->elements.insert(finding->elements.end(), row.elements.begin(), row.elements.end());
  name_contributions(*finding, diagnosis.contributions);
  if (finding->as_if.empty()) finding->as_if = diagnosis.as_if;
  list_alike(*finding, entry, diagnosis);
  for (std::size_t k = 0; k < row.open.size(); ++k)
    if (row.open[k] && row.expected[k] != 0 && std::find(finding->open.begin(), finding->open.end(), entry.columns[k].contribution) == finding->open.end())
      finding->open.push_back(entry.columns[k].contribution);
  weigh(*finding, row, diagnosis.contributions);
  if (const Mismatch* mismatch = fingerprint_of(entry.key); mismatch && !verdict_.weights) finding->worst = mismatch->worst;
  if (const auto in_values = first_in_values_.find(entry.key); in_values != first_in_values_.end()) finding->worst = in_values->second->worst;
}

// Each once. Of the first row they are in order, and there may be millions.
void Naming::name_contributions(Finding& finding, const std::vector<Miscounted>& contributions) {
  const auto place = [](const Miscounted& m) { return std::tuple(m.contribution.step, m.contribution.micro_batch, m.contribution.rank); };
  const auto not_before = [&](const Miscounted& a, const Miscounted& b) { return place(a) >= place(b); };
  if (finding.contributions.empty() && std::adjacent_find(contributions.begin(), contributions.end(), not_before) == contributions.end()) {
    finding.contributions = contributions;
    return;
  }
  if (finding.contributions == contributions) return;
  std::set<Contribution> named;
  for (const Miscounted& known : finding.contributions) named.insert(known.contribution);
  for (const Miscounted& m : contributions)
    if (named.insert(m.contribution).second) finding.contributions.push_back(m);
}

// In a run that is over, contributions with equal data cannot be told apart.
void Naming::list_alike(Finding& finding, const LedgerEntry& entry, const Diagnosis& diagnosis) {
  for (const LedgerColumn& column : entry.columns) {
    if (column.alike.empty()) continue;
    const bool named = std::any_of(diagnosis.contributions.begin(), diagnosis.contributions.end(), [&](const Miscounted& m) { return m.contribution == column.contribution; });
    for (const Contribution& other : column.alike)
      if (named && std::find(finding.alike.begin(), finding.alike.end(), other) == finding.alike.end()) finding.alike.push_back(other);
  }
}

void Naming::weigh(Finding& finding, const LedgerRow& row, const std::vector<Miscounted>& contributions) {
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

std::uint32_t Naming::first_event_of(const LedgerEntry& entry) const {
  const auto first = first_mismatch_.find(entry.step);
  return first == first_mismatch_.end() ? entry.key.event : std::min(first->second, entry.key.event);
}

}  // namespace gradledger::ref
