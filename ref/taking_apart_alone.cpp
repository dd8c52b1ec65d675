// Weights that runs of one contribution each told, put to the sums that runs of all of them left.
#include <algorithm>
#include <cmath>

#include "ref/classify.h"
#include "ref/dtype_facts.h"
#include "ref/taking_apart.h"

namespace gradledger::ref {
namespace {

// One column's weights, element by element.
class AlongRuns {
 public:
  explicit AlongRuns(const LedgerColumn& column) : column_(column) {}

  double at(std::uint64_t element) {
    while (run_ < column_.runs.size() && column_.runs[run_].end <= element) ++run_;
    return run_ < column_.runs.size() ? column_.runs[run_].coefficient : 0;
  }

 private:
  const LedgerColumn& column_;
  std::size_t run_ = 0;
};

// Whether a share is what another element's number makes of a weight, that element's divisors included.
bool of_another_element(double share, double rounding, bool exact) {
  constexpr int halvings = 10;
  for (int i = exact ? -halvings : 0; i <= (exact ? halvings : 0); ++i)
    if (ratio_of_probes(std::ldexp(share, i), rounding)) return true;
  return false;
}

}  // namespace

BornOut TakingApart::bear_out() {
  if (!fill()) return BornOut::no;
  std::vector<AlongRuns> columns(entry_.columns.begin(), entry_.columns.end());
  RowWeights weights;
  weights.open.assign(columns.size(), false);
  std::uint32_t elsewhere = 0, alike = 0;
  Elements wrong_as_due;
  for (std::uint32_t e = 0; e < numel_; ++e) {
    weights.value.clear();
    for (AlongRuns& column : columns) weights.value.push_back(column.at(e));
    if (says_wrong_is_due(weights, {e})) wrong_as_due.push_back(e);
    // Sums may be rounded where the runs of one contribution are not.
    if (std::all_of(rows_.begin(), rows_.end(), [&](const auto& rows) { return !rows[e].gradients || solver_.explains(weights, rows[e], true); })) continue;
    switch (out_of_place(weights, e)) {
      case OutOfPlace::no: return BornOut::no;
      case OutOfPlace::yes: ++elsewhere; break;
      case OutOfPlace::untold: ++alike; break;
    }
  }
  // Two elements may have the same number. One that is there in place of the other is then told by its neighbours.
  open_where_wrong(wrong_as_due);
  if (elsewhere > 0) return BornOut::out_of_place;
  return alike > 0 ? BornOut::no : BornOut::as_weights;
}

// Its weights are off by less than what a lone contribution may be rounded by. Elements are in order.
void TakingApart::open_where_wrong(const Elements& elements) {
  for (LedgerColumn& column : entry_.columns) {
    const auto known = std::move(column.runs);
    column.runs.clear();
    auto next = elements.begin();
    for (CoefficientRun rest : known)
      while (rest.begin < rest.end) {
        CoefficientRun part = rest;
        while (next != elements.end() && *next < rest.begin) ++next;
        part.open = part.open || (next != elements.end() && *next == rest.begin);
        if (next != elements.end()) part.end = *next == rest.begin ? rest.begin + 1 : std::min<std::uint64_t>(rest.end, *next);
        column.append(part);
        rest.begin = part.end;
      }
  }
}

// Whether what runs of one contribution show of an element is in part that of another element: off by the quotient of the two's numbers, one for all that
// is off. Where weights are exact, one contribution tells it, and others may have another weight beside.
TakingApart::OutOfPlace TakingApart::out_of_place(const RowWeights& weights, std::uint32_t element) const {
  const bool exact = ledger_.tolerance() == 0;
  const double rounding = std::max(ledger_.tolerance(), 8 * facts_of(Dtype::float64).unit_roundoff());
  bool untold = false;
  for (const bool own : {false, true}) {
    double ratio = 0;
    std::uint32_t off = 0;
    bool one_ratio = true;
    for (std::size_t k = 0; k < entry_.columns.size() && one_ratio; ++k) {
      const double due = expected_[piece_of_[element]][k];
      if (weights.value[k] == 0 || weights.value[k] == due) continue;
      const double share = weights.value[k] / (due != 0 ? due : own ? entry_.columns[k].own : entry_.columns[k].averaged);
      if (exact && short_dyadic(share)) continue;
      one_ratio = std::isfinite(share) && (off == 0 || std::abs(share - ratio) <= 2 * rounding * std::abs(ratio));
      if (off++ == 0) ratio = share;
    }
    untold = untold || (one_ratio && off == 0);
    if (one_ratio && off >= (exact ? 1u : 2u) && of_another_element(ratio, rounding, exact)) return OutOfPlace::yes;
  }
  return untold ? OutOfPlace::untold : OutOfPlace::no;
}

}  // namespace gradledger::ref
