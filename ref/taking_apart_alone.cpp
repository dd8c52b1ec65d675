// Weights that runs of one contribution each told, put to the sums that runs of all of them left.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ref/classify.h"
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

// Relative, of a quotient of two weights; they are fp64 numbers, however exact.
double rounding_of_quotients(double tolerance) { return std::max(tolerance, 8 * std::numeric_limits<double>::epsilon()); }

// A share that doubling, missing and repeated divisions leave: where weights are exact, of powers of two.
bool is_simple(double share, double rounding, bool exact) {
  if (exact) return short_dyadic(share);
  const double larger = std::max(std::abs(share), 1 / std::abs(share));
  return std::abs(larger - std::nearbyint(larger)) <= rounding * larger;
}

// Of a piece: the first element that has one, and past the last.
struct Quotients {
  std::uint64_t first = 0, last = 0;
};

// A contribution that is added up again and again is rounded each time, so that its weight is about the same in all elements. Two elements' numbers have
// another quotient in each.
class Repeated {
 public:
  explicit Repeated(double rounding) : rounding_(rounding) {}

  void take(double weight) {
    least_ = std::min(least_, std::abs(weight));
    most_ = std::max(most_, std::abs(weight));
    ++taken_;
  }
  bool alike() const { return taken_ > 1 && most_ - least_ <= rounding_ * most_; }

 private:
  double rounding_, least_ = HUGE_VAL, most_ = 0;
  std::size_t taken_ = 0;
};

// Whether a share is what another element's number makes of a weight, that element's divisors included.
bool of_another_element(double share, double rounding, bool exact) {
  constexpr int halvings = 10;
  for (int i = exact ? -halvings : 0; i <= (exact ? halvings : 0); ++i)
    if (ratio_of_probes(std::ldexp(share, i), rounding)) return true;
  return false;
}

// Micro-batches may be divided otherwise than one another, where one of them is scaled by hand.
bool halvings_apart(double share, double other, double rounding) {
  const double ratio = share / other;
  return ratio > 0 && std::abs(ratio - std::exp2(std::nearbyint(std::log2(ratio)))) <= rounding * ratio;
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
  constexpr double fine = 1.0 / 4096;  // where a quotient of numbers is no other one that is near
  const bool told = ledger_.tolerance() == 0 || (elsewhere > 0 && ledger_.tolerance() < fine);
  for (LedgerColumn& column : entry_.columns)
    if (told) mark_misplaced(column, elsewhere > 0);
  if (elsewhere > 0) return told ? BornOut::as_weights : BornOut::out_of_place;
  return alike > 0 ? BornOut::no : BornOut::as_weights;
}

// Exact weights that are no quotient of powers of two are those of two elements' numbers. An element between such ones, or of which nothing is due, has the
// weight of a contribution by chance: the other element has the same number.
void TakingApart::mark_misplaced(LedgerColumn& column, bool sums_tell) const {
  const std::size_t k = static_cast<std::size_t>(&column - entry_.columns.data());
  const bool exact = ledger_.tolerance() == 0;
  const double rounding = rounding_of_quotients(ledger_.tolerance());
  std::vector<double> weights;
  AlongRuns along(column);
  for (std::uint64_t e = 0; e < numel_; ++e) weights.push_back(along.at(e));
  const auto quotient = [&](std::uint64_t e) {
    const double due = expected_[piece_of_[e]][k], weight = due != 0 ? due : column.averaged != 0 ? column.averaged : column.own;
    if (weights[e] == 0 || weights[e] == due || weight == 0) return false;
    const double share = weights[e] / weight;
    return !is_simple(share, rounding, exact) && of_another_element(share, rounding, exact);
  };
  std::vector<Quotients> quotients(entry_.layout.size(), Quotients{numel_, 0});
  Repeated rounded(static_cast<double>(timeline_.backwards.size()) * 2 * addition_);
  for (std::uint64_t e = 0; e < numel_; ++e) {
    if (weights[e] != 0 && weights[e] != expected_[piece_of_[e]][k]) rounded.take(weights[e]);
    if (!quotient(e)) continue;
    Quotients& of_piece = quotients[piece_of_[e]];
    of_piece = {std::min(of_piece.first, e), e + 1};
  }
  if (std::all_of(quotients.begin(), quotients.end(), [](const Quotients& r) { return r.last == 0; })) return;
  if (!sums_tell && rounded.alike()) return;
  const auto known = std::move(column.runs);
  column.runs.clear();
  std::size_t run = 0;
  for (std::uint64_t e = 0; e < numel_; ++e) {
    while (run + 1 < known.size() && known[run].end <= e) ++run;
    CoefficientRun part{e, e + 1, weights[e], run < known.size() && known[run].open};
    const Quotients& of_piece = quotients[piece_of_[e]];
    part.misplaced = weights[e] != 0 && (expected_[piece_of_[e]][k] == 0 || (of_piece.first <= e && e < of_piece.last));
    if (part.misplaced) part.coefficient = 0;
    column.append(part);
  }
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
  const double rounding = rounding_of_quotients(ledger_.tolerance());
  bool untold = false;
  for (const bool own : {false, true}) {
    double ratio = 0;
    std::uint32_t off = 0;
    bool one_ratio = true;
    for (std::size_t k = 0; k < entry_.columns.size() && one_ratio; ++k) {
      const double due = expected_[piece_of_[element]][k];
      if (weights.value[k] == 0 || weights.value[k] == due) continue;
      const double share = weights.value[k] / (due != 0 ? due : own ? entry_.columns[k].own : entry_.columns[k].averaged);
      if (is_simple(share, rounding, exact)) continue;
      one_ratio = std::isfinite(share) && (off == 0 || halvings_apart(share, ratio, 2 * rounding));
      if (off++ == 0) ratio = share;
    }
    untold = untold || (one_ratio && off == 0);
    if (one_ratio && off >= (exact ? 1u : 2u) && of_another_element(ratio, rounding, exact)) return OutOfPlace::yes;
  }
  return untold ? OutOfPlace::untold : OutOfPlace::no;
}

}  // namespace gradledger::ref
