// An entry as rows: elements that share what every contribution weighs in them.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "ref/ledger.h"

namespace gradledger::ref {

// Walks an entry from one place to the next at which a column or the layout changes. Of a real model's hundreds of parameters most are one row.
class Ledger::Rows {
 public:
  Rows(const Ledger& ledger, const LedgerEntry& entry) : ledger_(ledger), entry_(entry), run_of_(entry.columns.size(), 0) {
    const auto infinite = [](const CoefficientRun& run) { return std::isinf(run.coefficient); };
    infinite_ = std::any_of(entry.columns.begin(), entry.columns.end(), [&](const LedgerColumn& column) { return std::any_of(column.runs.begin(), column.runs.end(), infinite); });
  }

  std::vector<LedgerRow> take() {
    for (const LedgerColumn& column : entry_.columns) cut_where(column);
    auto change = changes_.begin();
    std::uint64_t at = 0;
    for (const ElementRange& range : entry_.layout) {
      const std::uint64_t begin = at, end = begin + (range.end - range.begin);
      while (at < end) {
        while (change != changes_.end() && *change <= at) {
          changed_ = true;
          ++change;
        }
        const std::uint64_t next = change == changes_.end() ? end : std::min(end, *change);
        add({range.parameter, range.begin + (at - begin), range.begin + (next - begin)}, at);
        at = next;
      }
    }
    return std::move(rows_);
  }

 private:
  // Most columns change where those before did.
  void cut_where(const LedgerColumn& column) {
    const auto known = static_cast<std::ptrdiff_t>(changes_.size());
    std::ptrdiff_t at = 0;
    for (const CoefficientRun& run : column.runs) {
      while (at < known && changes_[static_cast<std::size_t>(at)] < run.begin) ++at;
      if (at == known || changes_[static_cast<std::size_t>(at)] != run.begin) changes_.push_back(run.begin);
    }
    std::inplace_merge(changes_.begin(), changes_.begin() + known, changes_.end());
  }

  void add(const ElementRange& elements, std::uint64_t at) {
    const std::uint32_t alike = ledger_.alike_[elements.parameter];
    const bool approximated = ledger_.approximated(entry_, elements.parameter);
    const bool again = !changed_ && alike_ == alike && !approximated && !approximated_;
    if (!again) row_ = place_of(row_at(at, alike, approximated));
    changed_ = false;
    alike_ = alike;
    approximated_ = approximated;
    std::vector<ElementRange>& all = rows_[row_].elements;
    if (!all.empty() && all.back().parameter == elements.parameter && all.back().end == elements.begin) all.back().end = elements.end;
    else all.push_back(elements);
  }

  // Of an element, counted through the snapshot's.
  LedgerRow row_at(std::uint64_t at, std::uint32_t alike, bool approximated) {
    LedgerRow row;
    row.expected = due_of(alike);
    row.observed.resize(row.expected.size());
    row.open.resize(row.expected.size());
    row.misplaced.resize(row.expected.size());
    for (std::size_t k = 0; k < entry_.columns.size(); ++k) {
      const auto& runs = entry_.columns[k].runs;
      while (runs[run_of_[k]].end <= at) ++run_of_[k];
      take(runs[run_of_[k]], k, row);
    }
    if (approximated) ledger_.take_approximation(entry_, row);
    return row;
  }

  void take(const CoefficientRun& run, std::size_t k, LedgerRow& row) const {
    const double due = row.expected[k];
    double& observed = row.observed[k] = run.coefficient;
    if (run.misplaced) row.misplaced[k] = true;
    if (run.open) row.open[k] = true;
    if (run.open) row.inconclusive = entry_.symbolic ? NotTold::symbolic : NotTold::open;
    if (!std::isfinite(observed) && hides_weights()) {
      observed = due;
      row.misplaced[k] = false;
      row.inconclusive = ledger_.timeline_.planted.empty() ? NotTold::not_finite : NotTold::planted;
    }
    if (tolerance_ < tolerance_max || observed == 0 || due == 0) return;
    if (observed != due) row.inconclusive = NotTold::rounding;
    observed = due;
  }

  // Where a NaN may be memory that nobody wrote, a division by 0 is known by infinities of what the run has.
  bool hides_weights() const { return !entry_.symbolic && (infinite_ || !ledger_.fills_unwritten_ || !ledger_.timeline_.planted.empty()); }

  const std::vector<double>& due_of(std::uint32_t parameter) {
    const auto [at, fresh] = due_.try_emplace(parameter);
    if (!fresh) return at->second;
    at->second.reserve(entry_.columns.size());
    DueWeights due = ledger_.due(entry_, parameter);
    for (const LedgerColumn& column : entry_.columns) at->second.push_back(due.of(column.backward, column.rank));
    return at->second;
  }

  std::size_t place_of(LedgerRow row) {
    const auto same = std::find_if(rows_.begin(), rows_.end(), [&](const LedgerRow& r) {
      return r.observed == row.observed && r.expected == row.expected && r.open == row.open && r.misplaced == row.misplaced && r.inconclusive == row.inconclusive;
    });
    if (same != rows_.end()) return static_cast<std::size_t>(same - rows_.begin());
    rows_.push_back(std::move(row));
    return rows_.size() - 1;
  }

  const Ledger& ledger_;
  const LedgerEntry& entry_;
  const double tolerance_ = ledger_.tolerance();
  std::vector<std::uint64_t> changes_;                // where a run of any column begins, sorted
  std::vector<std::size_t> run_of_;                   // by column: the one at hand
  std::map<std::uint32_t, std::vector<double>> due_;  // by column, of parameters of which the same is due
  std::vector<LedgerRow> rows_;
  // Of the elements that came last.
  std::size_t row_ = 0;
  std::uint32_t alike_ = never;
  bool approximated_ = false;
  bool changed_ = true;    // since
  bool infinite_ = false;  // some weight
};

std::vector<LedgerRow> Ledger::rows(const LedgerEntry& entry) const { return Rows(*this, entry).take(); }

// Weights are whatever they are. The symbolic run still tells which contributions take part: one that is due and is not there stays wrong, and so
// does one that is out of place. In numbers an approximation may have no trace of one.
void Ledger::take_approximation(const LedgerEntry& entry, LedgerRow& row) const {
  if (!entry.symbolic) row.misplaced.assign(row.observed.size(), false);
  const auto absent = [&](std::size_t k) { return row.observed[k] == 0 && row.expected[k] != 0; };
  for (std::size_t k = 0; k < row.observed.size(); ++k)
    if (entry.symbolic && (absent(k) || row.misplaced_at(k) || !std::isfinite(row.observed[k]))) return;
  row.observed = row.expected;
  row.open.assign(row.observed.size(), true);
  row.inconclusive = NotTold::approximated;
}

}  // namespace gradledger::ref
