// A run that is over shows its values once. Books are kept by values alone then: where these are off by more than rounding explains, the weights
// that would leave them are worked out from the gradients, which are known.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "ref/decode.h"
#include "ref/dtype_facts.h"
#include "ref/passes.h"
#include "ref/probes.h"

namespace gradledger::ref {
namespace {

constexpr std::size_t terms_max = std::size_t{1} << 24;  // of all equations of a snapshot

// Watches the run again, and decodes the snapshots that are asked for.
class SnapshotDecoder final : public TraceSink {
 public:
  SnapshotDecoder(const Workload& workload, const Timeline& timeline, const GradientSource& source, Ledger& ledger, const std::map<SnapshotKey, std::uint32_t>& wanted)
      : workload_(workload), timeline_(timeline), source_(source), ledger_(ledger), wanted_(wanted) {}

  void step_fact(const StepRecord& r) override {
    if (r.fact == StepFact::gradient_norm) norms_[{r.event, r.rank}] = r.value;
  }

  void observe(const Observation& o) override {
    const SnapshotKey key{o.event, o.at_end, o.rank, std::string(o.buffer)};
    const auto wanted = wanted_.find(key);
    if (wanted == wanted_.end()) return;
    auto entry = decode(o, key, wanted->second);
    if (entry) decoded_.push_back(std::move(*entry));
    else closed_.push_back(key);
  }

  std::vector<LedgerEntry>& decoded() { return decoded_; }
  std::vector<SnapshotKey>& closed() { return closed_; }  // that no weights explain, or that hold too much

 private:
  bool may_be_clipped(const Observation& o) const { return o.role == Role::applied_gradient && timeline_.contract.clip.max_norm > 0; }

  // What clipping left of a step's gradient, by the norm that the step reported.
  double clipped_to(const Observation& o) const {
    const auto norm = norms_.find({o.event, o.rank});
    if (!may_be_clipped(o) || norm == norms_.end()) return 1;
    return std::min(1.0, timeline_.contract.clip.max_norm / (norm->second + timeline_.contract.clip.guard));
  }

  // A factor that all contributions have in common is clipping's, whatever norm was reported: weights are told up to it.
  std::optional<LedgerEntry> decode(const Observation& o, const SnapshotKey& key, std::uint32_t after) {
    const double clip = clipped_to(o);
    auto out = clip > 0 ? decode(o, key, after, clip) : std::nullopt;
    if (out && may_be_clipped(o)) {
      const double common = factor_of_the_window(*out);
      auto again = common > 0 && common != 1 ? decode(o, key, after, clip * common) : std::nullopt;
      if (again && factor_of_the_window(*again) == 1) out = std::move(again);
    }
    if (out) remember(*out);
    return out;
  }

  // Observed weight over due weight of the window's contributions; 0 where it is not one for all.
  double factor_of_the_window(const LedgerEntry& entry) const {
    double least = HUGE_VAL, most = 0;
    for (const LedgerColumn& column : entry.columns) {
      if (column.contribution.step != entry.step || column.runs.front().open) continue;
      const double due = ledger_.expected(entry, column.backward, column.rank, entry.layout.front().parameter);
      if (due == 0) continue;
      least = std::min(least, column.runs.front().coefficient / due);
      most = std::max(most, column.runs.front().coefficient / due);
    }
    // Each is off by rounding.
    return least > 0 && most <= least * (1 + Ledger::tolerance_max) ? (least + most) / 2 : 0;
  }

  double rounding(const Observation& o) const {
    const double of_norm = static_cast<double>(workload_.numel()) + 8;  // a sum of squares, its root, and six roundings of the factor
    return ledger_.lone_rounding() + (may_be_clipped(o) ? of_norm * facts_of(Dtype::float32).unit_roundoff() : 0);
  }

  std::optional<LedgerEntry> decode(const Observation& o, const SnapshotKey& key, std::uint32_t after, double clip) const {
    LedgerEntry entry = ledger_.empty_entry(key, o.role, after);
    std::size_t elements = 0;
    for (const ObservedPiece& piece : o.pieces) {
      if (piece.parameter < 0 || piece.numel == 0) continue;
      entry.layout.push_back({static_cast<std::uint32_t>(piece.parameter), piece.parameter_offset, piece.parameter_offset + piece.numel});
      elements += piece.numel;
    }
    if (entry.columns.empty() || elements == 0 || elements * entry.columns.size() > terms_max) return std::nullopt;
    const auto whole = weights_of(entry, o, clip, std::nullopt);
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < o.pieces.size(); ++i) {
      if (o.pieces[i].parameter < 0 || o.pieces[i].numel == 0) continue;
      const auto own = whole ? whole : weights_of(entry, o, clip, i);
      if (!own) return std::nullopt;
      write_runs(entry, o.pieces[i], *own, at);
      at += o.pieces[i].numel;
    }
    return entry;
  }

  std::vector<Candidate> candidates(const LedgerEntry& entry, const Observation& o) const {
    const bool applied = entry.role == Role::applied_gradient;
    std::vector<Candidate> out;
    for (const LedgerColumn& column : entry.columns) {
      Candidate candidate{0, column.own, column.averaged, (applied ? column.contribution.step : column.documented) == entry.step, 0};
      for (const ObservedPiece& piece : o.pieces)
        if (piece.parameter >= 0 && timeline_.counts(workload_, column.backward, column.rank, static_cast<std::uint32_t>(piece.parameter)))
          candidate.due = std::max(candidate.due, ledger_.expected(entry, column.backward, column.rank, static_cast<std::uint32_t>(piece.parameter)));
      const auto before = seen_.find({entry.key.rank, entry.step, column.backward, column.rank});
      if (before != seen_.end()) candidate.seen_before = before->second;
      out.push_back(candidate);
    }
    return out;
  }

  // Of all pieces, or of one.
  std::optional<std::vector<Weight>> weights_of(const LedgerEntry& entry, const Observation& o, double clip, std::optional<std::size_t> only) const {
    double u = 0;
    for (Dtype dtype : {workload_.model_dtype, timeline_.contract.accumulation, timeline_.contract.wire}) u = std::max(u, facts_of(dtype).unit_roundoff());
    Decoder decoder(candidates(entry, o), rounding(o), u);
    const double unit = o.scale * clip;
    for (std::size_t i = 0; i < o.pieces.size(); ++i) {
      const ObservedPiece& piece = o.pieces[i];
      if (piece.parameter < 0 || piece.numel == 0 || (only && *only != i)) continue;
      const auto p = static_cast<std::uint32_t>(piece.parameter);
      std::vector<double> held(piece.numel), gradient(piece.numel);
      read_stored(piece.dtype, piece.data, piece.numel, held.data());
      std::vector<std::vector<double>> by_element(piece.numel, std::vector<double>(entry.columns.size()));
      for (std::size_t k = 0; k < entry.columns.size(); ++k) {
        if (!timeline_.counts(workload_, entry.columns[k].backward, entry.columns[k].rank, p)) continue;
        source_.gradient(entry.columns[k].backward, entry.columns[k].rank, p, piece.parameter_offset, gradient);
        for (std::uint64_t e = 0; e < piece.numel; ++e) by_element[e][k] = gradient[e];
      }
      const double smallest = facts_of(piece.dtype).tiny() * static_cast<double>(entry.columns.size());
      for (std::uint64_t e = 0; e < piece.numel; ++e) {
        const bool finite = std::isfinite(held[e]) && std::all_of(by_element[e].begin(), by_element[e].end(), [](double g) { return std::isfinite(g); });
        if (finite) decoder.add(std::move(by_element[e]), held[e] / unit, ((piece.error ? piece.error[e] : 0) + smallest) / unit);
      }
    }
    return decoder.weights();
  }

  void write_runs(LedgerEntry& entry, const ObservedPiece& piece, const std::vector<Weight>& weights, std::uint64_t at) const {
    for (std::size_t k = 0; k < entry.columns.size(); ++k) {
      LedgerColumn& column = entry.columns[k];
      const auto p = static_cast<std::uint32_t>(piece.parameter);
      const bool used = timeline_.counts(workload_, column.backward, column.rank, p);
      const double weight = used && !weights[k].open ? weights[k].value : ledger_.expected(entry, column.backward, column.rank, p);
      column.runs.push_back({at, at + piece.numel, weight, used && weights[k].open});
      for (const std::size_t other : weights[k].alike) {
        const Contribution& contribution = entry.columns[other].contribution;
        if (used && std::find(column.alike.begin(), column.alike.end(), contribution) == column.alike.end()) column.alike.push_back(contribution);
      }
    }
  }

  // What of earlier windows has been told apart; what shares its data with the window's own will come to be mixed up with these.
  void remember(const LedgerEntry& entry) {
    for (const LedgerColumn& column : entry.columns)
      if (column.documented < entry.step && column.alike.empty() && !column.runs.empty() && !column.runs.front().open && column.runs.front().coefficient != 0)
        seen_[{entry.key.rank, entry.step, column.backward, column.rank}] = column.runs.front().coefficient;
  }

  const Workload& workload_;
  const Timeline& timeline_;
  const GradientSource& source_;
  Ledger& ledger_;
  const std::map<SnapshotKey, std::uint32_t>& wanted_;                                             // and the reduction after which contributions to local sums are due
  std::map<std::pair<std::uint32_t, std::uint32_t>, double> norms_;                                // by event, rank
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>, double> seen_;  // by rank, window, backward, its rank
  std::vector<LedgerEntry> decoded_;
  std::vector<SnapshotKey> closed_;
};

}  // namespace

void Passes::one_pass(Verdict& verdict) {
  const GradientKind kind = workload_.gradients.kind;
  expects(kind == GradientKind::values || kind == GradientKind::mlp, "a run that is over has the gradients that it had");
  verdict.one_pass = true;
  verdict.dyadic = false;
  verdict.contributions = static_cast<std::uint32_t>(all_contributions().size());
  value_pass(kind, true, verdict);
  const auto given = value_source(workload_, timeline_, kind, 0);
  const PlantedSource source(*given, timeline_);
  forget_empty_updates(source);
  std::map<SnapshotKey, std::uint32_t> wanted;
  for (const Mismatch& m : evidence_.values)
    if (!m.clipping) wanted[m.key] = m.after;  // else it is right but for one factor, which is no weight
  if (wanted.empty()) return;
  SnapshotDecoder decoder(workload_, timeline_, source, ledger_, wanted);
  producer_.run(source, {}, decoder);
  keep_decoded(decoder.decoded(), verdict);
  verdict.unexplained.insert(verdict.unexplained.end(), decoder.closed().begin(), decoder.closed().end());
}

// An update by a gradient of zeros leaves no trace in weights: that none is seen is no evidence. Whether a step had to be skipped is asked elsewhere.
void Passes::forget_empty_updates(const GradientSource& source) {
  Model model(workload_, timeline_, source, Model::Mode::bounded);
  std::erase_if(evidence_.not_applied, [&](const auto& hole) {
    if (evidence_.skipped.contains(hole.first)) return true;
    const Field& due = model.reduced(hole.first, false);
    return std::all_of(hole.second.begin(), hole.second.end(), [&](const ElementRange& range) {
      for (std::size_t i = model.offset(range.parameter) + range.begin; i < model.offset(range.parameter) + range.end; ++i)
        if (!(std::abs(due.value[i]) <= due.error[i])) return false;
      return true;
    });
  });
}

// Of each rank and window the first snapshot whose weights are wrong, and what steps applied, as in a ledger of many passes.
void Passes::keep_decoded(std::vector<LedgerEntry>& decoded, Verdict& verdict) {
  std::stable_sort(decoded.begin(), decoded.end(), [](const LedgerEntry& a, const LedgerEntry& b) { return a.key < b.key; });
  std::set<std::pair<std::uint32_t, std::uint32_t>> first;
  for (LedgerEntry& entry : decoded) {
    const std::vector<LedgerRow> rows = ledger_.rows(entry);
    if (std::all_of(rows.begin(), rows.end(), [](const LedgerRow& row) { return row.observed == row.expected; })) {
      // The weights are right and the values are not: rounding, unless some weight stayed open.
      if (std::any_of(rows.begin(), rows.end(), [](const LedgerRow& row) { return row.inconclusive.has_value(); })) verdict.unexplained.push_back(entry.key);
      continue;
    }
    const auto of_values = std::find_if(evidence_.values.begin(), evidence_.values.end(), [&](const Mismatch& m) { return m.key == entry.key; });
    if (of_values != evidence_.values.end()) evidence_.fingerprint.push_back(*of_values);
    if (first.insert({entry.key.rank, entry.step}).second || entry.role == Role::applied_gradient) ledger_.put(std::move(entry));
  }
}

}  // namespace gradledger::ref
