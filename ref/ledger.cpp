#include "ref/ledger.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "ref/alike_parameters.h"
#include "ref/dtype_facts.h"

namespace gradledger::ref {

Ledger::Ledger(const Workload& workload, const Timeline& timeline, const ProbeRange& range)
    : workload_(workload),
      timeline_(timeline),
      range_(range),
      skipped_(windows_to_skip(timeline)),
      alike_(alike_parameters(workload, timeline)),
      factors_(user_factors(timeline)) {}

std::string_view name_of(NotTold reason) {
  switch (reason) {
    case NotTold::rounding: return "rounding";
    case NotTold::planted: return "planted overflow";
    case NotTold::open: return "left open by values";
    case NotTold::symbolic: return "beyond the symbolic run";
    case NotTold::approximated: return "approximated";
    case NotTold::not_finite: return "not finite";
  }
  return "";
}

// Reads one column off the snapshots of a pass.
class Ledger::Column final : public TraceSink {
 public:
  Column(Ledger& ledger, const SingleSource& source, std::uint32_t backward, std::uint32_t rank) : ledger_(ledger), source_(source), backward_(backward), rank_(rank) {}

  void observe(const Observation& o) override {
    const auto wanted = ledger_.wanted_.find(SnapshotKey{o.event, o.at_end, o.rank, std::string(o.buffer)});
    if (wanted == ledger_.wanted_.end()) return;
    LedgerEntry& entry = wanted->second;
    if (entry.columns.empty()) describe(entry, *wanted, o);
    else if (layout_of(o) != entry.layout) return;  // another buffer of that name
    LedgerColumn column = EntryColumns(ledger_.timeline_, o.rank, o.role == Role::applied_gradient ? Layer::meant : Layer::documented).column(backward_, rank_);
    const auto place = std::lower_bound(entry.columns.begin(), entry.columns.end(), column, before);
    const bool shown = place != entry.columns.end() && !before(column, *place);
    if (shown && !gave_zeros_.contains(wanted->first)) return;  // by a run before this one
    for (const ObservedPiece& piece : o.pieces)
      if (piece.parameter >= 0) read(piece, o.scale, column);
    // An optimizer inside a backward may be given zeros before it is given the gradient.
    if (o.role == Role::applied_gradient && std::all_of(column.runs.begin(), column.runs.end(), [](const CoefficientRun& run) { return run.coefficient == 0; }))
      gave_zeros_.insert(wanted->first);
    if (shown) *place = std::move(column);
    else entry.columns.insert(place, std::move(column));
  }

 private:
  static bool before(const LedgerColumn& a, const LedgerColumn& b) { return std::pair(a.backward, a.rank) < std::pair(b.backward, b.rank); }

  void read(const ObservedPiece& piece, double scale, LedgerColumn& column) {
    stored_.resize(piece.numel);
    read_stored(piece.dtype, piece.data, piece.numel, stored_.data());
    const auto parameter = static_cast<std::uint32_t>(piece.parameter);
    for (std::uint64_t i = 0; i < piece.numel; ++i) {
      const bool shared = source_.is_shared(parameter, piece.parameter_offset + i);
      const std::uint64_t told_by = !shared ? i : i > 0 ? i - 1 : i + 1;  // a neighbour
      const double probe = source_.probe(parameter, piece.parameter_offset + told_by);
      const double coefficient = told_by < piece.numel ? ledger_.snapped(stored_[told_by] / (probe * scale), column) : 0;
      const std::uint64_t at = column.runs.empty() ? 0 : column.runs.back().end;
      if (!column.runs.empty() && ledger_.same(column.runs.back().coefficient, coefficient)) column.runs.back().end = at + 1;
      else column.runs.push_back({at, at + 1, coefficient});
    }
  }

  void describe(LedgerEntry& entry, const std::pair<const SnapshotKey, LedgerEntry>& wanted, const Observation& o) {
    entry.key = wanted.first;
    entry.role = o.role;
    entry.step = ledger_.timeline_.window_at(o.event, o.at_end, o.role == Role::applied_gradient ? Layer::meant : Layer::documented);
    entry.layout = layout_of(o);
  }

  static std::vector<ElementRange> layout_of(const Observation& o) {
    std::vector<ElementRange> layout;
    for (const ObservedPiece& piece : o.pieces)
      if (piece.parameter >= 0) layout.push_back({static_cast<std::uint32_t>(piece.parameter), piece.parameter_offset, piece.parameter_offset + piece.numel});
    return layout;
  }

  Ledger& ledger_;
  const SingleSource& source_;
  std::uint32_t backward_, rank_;
  std::vector<double> stored_;
  std::set<SnapshotKey> gave_zeros_;  // in this run
};

void Ledger::decode(Producer& producer, const Schedule& schedule, const std::vector<std::pair<std::uint32_t, std::uint32_t>>& backward_and_rank, bool keeps_alive) {
  SingleSource single(range_);
  if (keeps_alive) single.keep_alive(shared_element());
  const PlantedSource source(single, timeline_);
  RunOptions options;
  options.linear = true;
  options.wide = range_.wide;
  options.schedule = schedule;
  for (const auto& [backward, rank] : backward_and_rank) {
    single.light(backward, rank);
    Column column(*this, single, backward, rank);
    producer.run(source, options, column);
  }
}

// In the middle of the parameter that most contributions have a gradient of, so that it has neighbours where partitions cut the parameter; of these the longest.
std::optional<SingleSource::Element> Ledger::shared_element() const {
  constexpr std::uint64_t numel_min = 3;
  std::optional<std::uint32_t> best;
  std::uint64_t of_best = 0;
  for (std::uint32_t p = 0; p < workload_.parameters.size(); ++p) {
    if (workload_.parameters[p].numel < numel_min) continue;
    std::uint64_t contributions = 0;
    for (std::uint32_t b = 0; b < timeline_.backwards.size(); ++b)
      for (std::uint32_t r = 0; r < workload_.world_size; ++r) contributions += timeline_.used(workload_, b, r, p);
    if (best && (contributions < of_best || (contributions == of_best && workload_.parameters[p].numel <= workload_.parameters[*best].numel))) continue;
    best = p;
    of_best = contributions;
  }
  if (!best) return std::nullopt;
  return SingleSource::Element{*best, workload_.parameters[*best].numel / 2};
}

LedgerEntry Ledger::empty_entry(const SnapshotKey& key, Role role, std::uint32_t after) const {
  const Layer layer = role == Role::applied_gradient ? Layer::meant : Layer::documented;
  LedgerEntry entry;
  entry.key = key;
  entry.role = role;
  entry.after = after;
  entry.step = timeline_.window_at(key.event, key.at_end, layer);
  // An optimizer that runs inside a backward has the gradients of that backward, whether it is to step there or not.
  const std::uint32_t end = key.event + (key.at_end || timeline_.events[key.event].is<events::Backward>());
  EntryColumns columns(timeline_, key.rank, layer);
  for (std::uint32_t b = 0; b < timeline_.backwards.size() && timeline_.backwards[b].event < end; ++b)
    for (std::uint32_t r = 0; r < workload_.world_size; ++r)
      if (timeline_.backwards[b].micro_batch[r] != no_contribution) entry.columns.push_back(columns.column(b, r));
  return entry;
}

double Ledger::rounding() const {
  if (!range_.wide) return tolerance();
  // A lone contribution: a product and a rounding for each way that it may be scaled, of which there is one for every event at most.
  return (8.0 + 2.0 * workload_.world_size + 2.0 * static_cast<double>(timeline_.events.size())) * facts_of(Dtype::float64).unit_roundoff();
}

double Ledger::tolerance() const { return range_.dyadic || range_.wide ? 0 : lone_rounding(); }

double Ledger::lone_rounding() const {
  double u = 0;
  for (Dtype dtype : {workload_.model_dtype, timeline_.contract.accumulation, timeline_.contract.wire}) u = std::max(u, facts_of(dtype).unit_roundoff());
  std::uint32_t reductions = 1;                       // of one window: an engine may average what it has at each boundary
  std::map<std::uint32_t, std::uint32_t> boundaries;  // by documented window, of which there may be more than the loop has
  for (const std::uint32_t event : timeline_.boundaries) reductions = std::max(reductions, ++boundaries[timeline_.events[event].documented]);
  // Deposit 2; a reduction: cast, two factors and a product, cast back, and a sum of world equal terms; unscaling 3.
  const auto set = static_cast<double>(timeline_.gradients_set.size());
  const double roundings = (5.0 + workload_.world_size) * reductions + 3 + set;
  const double made = std::max(u, facts_of(timeline_.contract.computed.value_or(workload_.model_dtype)).unit_roundoff());  // autograd's
  return 2 * made + roundings * u;
}

double Ledger::snapped(double coefficient, const LedgerColumn& column) const {
  if (range_.dyadic || coefficient == 0 || !std::isfinite(coefficient)) return coefficient;
  const auto close = [&](double to) { return std::abs(coefficient - to) <= rounding() * std::abs(to); };
  for (const double weight : {column.averaged, column.own})
    for (const double factor : factors_)
      if (close(weight * factor)) return weight * factor;
  if (range_.wide) {
    constexpr std::int64_t terms_max = 1 << 18;  // of two different probes none this small is the quotient
    const auto simple = simplest_within(coefficient, rounding() * std::abs(coefficient), terms_max);
    return simple ? value_of(*simple) : coefficient;
  }
  constexpr int multiples = 64;
  for (const double weight : {column.averaged, column.own}) {
    const double ratio = coefficient / weight;
    for (const double simple : {std::round(ratio), 1.0 / std::round(1.0 / ratio)})
      if (std::isfinite(simple) && simple != 0 && std::abs(simple) <= multiples && std::abs(simple) >= 1.0 / multiples && close(simple * weight)) return simple * weight;
  }
  return coefficient;
}

}  // namespace gradledger::ref
