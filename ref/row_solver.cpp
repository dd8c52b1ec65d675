#include "ref/row_solver.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "ref/ledger.h"
#include "ref/linear.h"
#include "sim/base/rational.h"

namespace gradledger::ref {
namespace {

constexpr std::size_t unknowns_max = 96;
constexpr std::uint32_t any_window = ~std::uint32_t{0};
// Of the largest weight, by elimination: the normal equations square the condition, so half of the 53 digits are left.
const double lost_in_fp64 = std::ldexp(1.0, -26);

}  // namespace

bool RowWeights::any_open() const { return std::find(open.begin(), open.end(), true) != open.end(); }

std::optional<RowWeights> RowSolver::solve(const std::vector<PackedRow>& rows) const {
  if (auto share = share_of_due(rows, false)) return share;
  const std::vector<Groups> sets{window(), with_earlier(1, false), with_earlier(any_window, false), with_earlier(1, true), with_earlier(any_window, true)};
  for (const Groups& groups : sets)
    if (groups.size() <= unknowns_max)
      if (auto found = fit(groups, rows, false); found && !found->any_open()) return found;
  // Too few rows for that, or too coarse ones: weights that are likely.
  for (const Groups& groups : {window(), with_earlier(1, true)})
    if (auto found = enumerate(groups, rows); found && !found->any_open()) return found;
  if (rounding_.exact) {
    // Weights that the formats do not hold exactly.
    if (auto share = share_of_due(rows, true)) return share;
    if (auto found = fit(window(), rows, true); found && !found->any_open()) return found;
  }
  // A part of them.
  if (auto found = fit(window(), rows, false)) return found;
  return enumerate(window(), rows);
}

std::size_t RowSolver::window_terms() const {
  return static_cast<std::size_t>(std::count_if(terms_.begin(), terms_.end(), [](const Term& t) { return t.windows_ago == 0; }));
}

RowSolver::Groups RowSolver::window() const { return with_earlier(0, false); }

// merged: an earlier window's terms have two weights, that of the rank's own and that of its peers'.
RowSolver::Groups RowSolver::with_earlier(std::uint32_t windows_ago, bool merged) const {
  Groups out;
  std::map<std::pair<std::uint32_t, bool>, Group> earlier;
  for (std::size_t k = 0; k < terms_.size(); ++k) {
    if (terms_[k].windows_ago > windows_ago) continue;
    if (merged && terms_[k].windows_ago > 0) earlier[{terms_[k].windows_ago, terms_[k].own_rank}].push_back(k);
    else out.push_back({k});
  }
  for (auto& [which, group] : earlier) out.push_back(std::move(group));
  return out;
}

double RowSolver::lit(const PackedRow& row, const Group& group) const {
  double sum = 0;
  for (const std::size_t k : group) sum += static_cast<double>(row.gradients[k]);
  return sum;
}

// Whole numbers of the least term that fit the format are not rounded.
double RowSolver::bound(double magnitude, double terms, double least, bool rounded) const {
  if (rounding_.exact && !rounded && magnitude <= std::ldexp(least * rounding_.unit, rounding_.precision)) return 0;
  return (rounding_.lone + rounding_.addition * terms) * magnitude;
}

bool RowSolver::explains(const RowWeights& weights, const PackedRow& row, bool rounded) const {
  if (weights.of_due) {
    const double off = rounding_.exact && !rounded ? 0 : (rounding_.lone + rounding_.addition * static_cast<double>(window_terms())) * row.due_magnitude;
    return std::abs(row.held - *weights.of_due * row.due) <= row.error + off * std::abs(*weights.of_due);
  }
  double sum = 0, magnitude = 0, least = HUGE_VAL, terms = 0;
  for (std::size_t k = 0; k < terms_.size(); ++k) {
    if (row.gradients[k] == 0) continue;
    if (weights.open[k]) return true;
    if (!weights.dark.empty() && weights.dark[k]) return false;
    if (weights.value[k] == 0) continue;
    const double term = weights.value[k] * static_cast<double>(row.gradients[k]);
    sum += term;
    magnitude += std::abs(term);
    least = std::min(least, std::abs(weights.value[k]));
    ++terms;
  }
  return std::abs(row.held - sum) <= row.error + (magnitude > 0 ? bound(magnitude, terms, least, rounded) : 0);
}

// The terms that no row has.
std::vector<bool> RowSolver::dark_in(const std::vector<PackedRow>& rows) const {
  std::vector<bool> out;
  for (std::size_t k = 0; k < terms_.size(); ++k) out.push_back(std::all_of(rows.begin(), rows.end(), [&](const PackedRow& row) { return row.gradients[k] == 0; }));
  return out;
}

// Positive terms that add up to no more than the format holds of the least of them were never rounded.
bool RowSolver::surely_exact(const PackedRow& row) const {
  double least = HUGE_VAL;
  for (const Term& term : terms_)
    for (const double weight : {term.averaged, term.own, term.due})
      if (weight != 0) least = std::min(least, std::abs(weight));
  return row.error == 0 && std::abs(row.held) <= std::ldexp(least * rounding_.unit, rounding_.precision);
}

double RowSolver::bits(const PackedRow& row) const {
  if (rounding_.exact) return rounding_.precision - 3;
  const double off = (rounding_.lone + rounding_.addition * static_cast<double>(window_terms())) * row.due_magnitude + row.error;
  return row.due_magnitude > off ? std::log2(row.due_magnitude / std::max(off, std::ldexp(row.due_magnitude, -20))) : 0;
}

// One factor for all of what is due. Few rows tell it only if it is a simple one.
std::optional<RowWeights> RowSolver::share_of_due(const std::vector<PackedRow>& rows, bool rounded) const {
  const PackedRow* largest = nullptr;
  for (const PackedRow& row : rows)
    if (row.due != 0 && (!largest || std::abs(row.due) > std::abs(largest->due))) largest = &row;
  if (!largest) return {};
  const bool exact = rounding_.exact && !rounded;
  const double share = largest->held / largest->due;
  double off = largest->error / std::abs(largest->due);
  if (!exact) off += std::abs(share) * (rounding_.lone + rounding_.addition * static_cast<double>(window_terms())) * largest->due_magnitude / std::abs(largest->due);
  constexpr std::int64_t parts_max = 64;
  const auto simple = simplest_within(share, off + lost_in_fp64 * std::abs(share), parts_max);
  RowWeights out;
  out.of_due = simple ? value_of(*simple) : share;
  out.dark = dark_in(rows);
  if (!std::all_of(rows.begin(), rows.end(), [&](const PackedRow& row) { return explains(out, row, rounded); })) return {};
  constexpr double bits_needed = 12;
  const double evidence = static_cast<double>(rows.size() - 1) * bits(*largest);
  return evidence >= bits_needed || (*out.of_due == 0 && exact) ? std::optional(out) : std::nullopt;
}

double RowSolver::likely(const Group& group) const {
  double out = 0;
  for (const std::size_t k : group) out = std::max({out, std::abs(terms_[k].averaged), std::abs(terms_[k].own), std::abs(terms_[k].due)});
  return out;
}

std::vector<double> RowSolver::plain_weights(const Group& group) const {
  std::vector<double> out;
  const auto add = [&](double weight) {
    if (std::find(out.begin(), out.end(), weight) == out.end()) out.push_back(weight);
  };
  const Term& term = terms_[group.front()];
  for (const double weight : {term.due, 0.0, term.averaged, term.own, 2 * term.due}) add(weight);
  return out;
}

RowSolver::Snapped RowSolver::snapped(double weight, double error, const Group& group) const {
  if (!(error < Ledger::tolerance_max * std::max(likely(group), std::abs(weight)))) return {terms_[group.front()].due, Kind::open};
  for (const double plain : plain_weights(group))
    if (std::abs(weight - plain) <= error) return {plain, Kind::plain};
  for (const double base : {terms_[group.front()].averaged, terms_[group.front()].own}) {
    if (base == 0) continue;
    for (const double ratio : {std::round(weight / base), 1.0 / std::round(base / weight)})
      if (std::isfinite(ratio) && ratio != 0 && std::abs(weight - ratio * base) <= error) return {ratio * base, Kind::odd};
  }
  constexpr std::int64_t parts_max = 1 << 12;
  const auto simple = simplest_within(weight, error, parts_max);
  return {simple ? value_of(*simple) : weight, Kind::odd};
}

RowWeights RowSolver::spread(const Groups& groups, const std::vector<Snapped>& of_groups) const {
  RowWeights out{std::vector<double>(terms_.size(), 0.0), std::vector<bool>(terms_.size(), false), {}, {}};
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const std::size_t k : groups[g]) {
      out.value[k] = of_groups[g].weight;
      out.open[k] = of_groups[g].kind == Kind::open;
    }
  return out;
}

// Least squares, with the error that roundings of the rows leave in each weight.
std::optional<RowWeights> RowSolver::fit(const Groups& groups, const std::vector<PackedRow>& rows, bool rounded) const {
  std::vector<std::size_t> asked;  // groups that some row has
  for (std::size_t g = 0; g < groups.size(); ++g)
    if (std::any_of(rows.begin(), rows.end(), [&](const PackedRow& row) { return lit(row, groups[g]) != 0; })) asked.push_back(g);
  if (asked.empty() || rows.size() < asked.size()) return {};
  const bool exact = rounding_.exact && !rounded;
  std::vector<PackedRow> best;
  const std::size_t wanted = 6 * asked.size() + 8;
  for (const PackedRow& row : rows)
    if (best.size() < wanted && (!exact || surely_exact(row))) best.push_back(row);
  const std::size_t used = best.size();
  if (used < asked.size()) return {};
  std::vector<std::vector<double>> a(used, std::vector<double>(asked.size()));
  for (std::size_t i = 0; i < used; ++i)
    for (std::size_t j = 0; j < asked.size(); ++j) a[i][j] = lit(best[i], groups[asked[j]]) / rounding_.unit;
  const auto inverse = least_squares(a, asked.size());
  if (inverse.empty()) return {};
  std::vector<Snapped> found(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) found[g] = {terms_[groups[g].front()].due, Kind::plain};
  std::vector<double> weights(asked.size(), 0.0);
  double largest = 0;
  for (std::size_t j = 0; j < asked.size(); ++j) {
    for (std::size_t i = 0; i < used; ++i) weights[j] += inverse[j][i] * best[i].held / rounding_.unit;
    largest = std::max(largest, std::abs(weights[j]));
  }
  std::set<double> odd;
  for (std::size_t j = 0; j < asked.size(); ++j) {
    double error = lost_in_fp64 * largest;
    for (std::size_t i = 0; i < used; ++i) {
      double off = best[i].error;
      if (!exact) {
        double magnitude = 0;
        for (std::size_t l = 0; l < asked.size(); ++l) magnitude += std::abs(a[i][l] * weights[l]);
        off += bound(magnitude * rounding_.unit, static_cast<double>(asked.size()), 0, true);
      }
      error += std::abs(inverse[j][i]) * off / rounding_.unit;
    }
    found[asked[j]] = snapped(weights[j], error, groups[asked[j]]);
    if (found[asked[j]].kind == Kind::odd) odd.insert(found[asked[j]].weight);
  }
  // With weights of whatever kind as many rows as there are unknowns are always explained.
  if (!odd.empty() && rows.size() < asked.size() + 2) return {};
  // One weight of a kind that nobody expects is a wrong scale. Several of them are told by rows to spare alone: else they may be a fit of something else.
  if (odd.size() > 2 && rows.size() < 2 * asked.size() + 8) return {};
  RowWeights out = spread(groups, found);
  out.dark = dark_in(rows);
  if (!std::all_of(rows.begin(), rows.end(), [&](const PackedRow& row) { return explains(out, row, rounded); })) return {};
  return out;
}

// Tries choices of plain weights: which of them explain all rows.
class RowSolver::Choices {
 public:
  Choices(const RowSolver& solver, const Groups& groups, const std::vector<PackedRow>& rows) : solver_(solver), groups_(groups), rows_(rows), chosen_(groups.size()) {
    for (const Group& group : groups) plain_.push_back(solver.plain_weights(group));
  }

  // False: there are too many.
  bool by_elimination();
  bool row_by_row();
  const std::vector<Snapped>& agreed() const { return agreed_; }  // open: choices differ. Empty: none explains them

 private:
  static constexpr double tries_max = 18;  // bits

  void take();
  void choose_pivots(const Reduced& reduced, const std::vector<std::size_t>& free);
  bool choose(std::size_t row, std::size_t group);

  const RowSolver& solver_;
  const Groups& groups_;
  const std::vector<PackedRow>& rows_;
  std::vector<std::vector<double>> plain_;
  std::vector<Snapped> chosen_, agreed_;
  std::vector<bool> set_;
  std::uint64_t tries_ = 0;
};

void RowSolver::Choices::take() {
  if (agreed_.empty()) agreed_ = chosen_;
  for (std::size_t g = 0; g < groups_.size(); ++g)
    if (agreed_[g].weight != chosen_[g].weight) agreed_[g].kind = Kind::open;
}

// Exact rows: what elimination leaves free is chosen, and tells the rest.
bool RowSolver::Choices::by_elimination() {
  LinearRows system;
  for (const PackedRow& row : rows_) {
    if (!solver_.surely_exact(row)) continue;
    std::vector<double>& equation = system.emplace_back();
    for (const Group& group : groups_) equation.push_back(solver_.lit(row, group) / solver_.rounding_.unit);
    equation.push_back(row.held / solver_.rounding_.unit);
  }
  const double nothing = std::ldexp(1.0, -30);  // as many of the 53 digits as numbers of 20 bits and some hundred rows leave
  const Reduced reduced = reduce(std::move(system), groups_.size(), nothing);
  std::vector<std::size_t> free;
  double tries = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (std::find(reduced.pivots.begin(), reduced.pivots.end(), g) != reduced.pivots.end()) continue;
    free.push_back(g);
    tries += std::log2(static_cast<double>(plain_[g].size()));
  }
  if (tries > tries_max) return false;
  const std::function<void(std::size_t)> choose_free = [&](std::size_t at) {
    if (at == free.size()) return choose_pivots(reduced, free);
    for (const double weight : plain_[free[at]]) {
      chosen_[free[at]] = {weight, Kind::plain};
      choose_free(at + 1);
    }
  };
  choose_free(0);
  return true;
}

void RowSolver::Choices::choose_pivots(const Reduced& reduced, const std::vector<std::size_t>& free) {
  for (std::size_t r = 0; r < reduced.rows.size(); ++r) {
    double weight = reduced.rows[r].back();
    for (const std::size_t g : free) weight -= reduced.rows[r][g] * chosen_[g].weight;
    const std::size_t pivot = reduced.pivots[r];
    const double near = lost_in_fp64 * solver_.likely(groups_[pivot]);
    const auto fits = std::find_if(plain_[pivot].begin(), plain_[pivot].end(), [&](double p) { return std::abs(weight - p) <= near; });
    if (fits == plain_[pivot].end()) return;
    chosen_[pivot] = {*fits, Kind::plain};
  }
  const RowWeights weights = solver_.spread(groups_, chosen_);
  if (std::all_of(rows_.begin(), rows_.end(), [&](const PackedRow& row) { return solver_.explains(weights, row); })) take();
}

// Rows of few terms each: the terms of one row are chosen, and the row is asked before the next.
bool RowSolver::Choices::row_by_row() {
  set_.assign(groups_.size(), false);
  for (std::size_t g = 0; g < groups_.size(); ++g) chosen_[g] = {0, Kind::plain};
  return choose(0, 0);
}

bool RowSolver::Choices::choose(std::size_t row, std::size_t group) {
  constexpr std::uint64_t steps_max = 1u << 15;
  if (++tries_ > steps_max) return false;
  if (row == rows_.size()) {
    take();
    return true;
  }
  while (group < groups_.size() && (set_[group] || solver_.lit(rows_[row], groups_[group]) == 0)) ++group;
  if (group == groups_.size()) return !solver_.explains(solver_.spread(groups_, chosen_), rows_[row]) || choose(row + 1, 0);
  set_[group] = true;
  bool all = true;
  for (const double weight : plain_[group]) {
    chosen_[group] = {weight, Kind::plain};
    all = all && choose(row, group + 1);
  }
  chosen_[group] = {0, Kind::plain};
  set_[group] = false;
  return all;
}

// Every choice of plain weights that explains the rows. Only what all of these agree in is told, and only where chance would hardly have left one.
std::optional<RowWeights> RowSolver::enumerate(const Groups& all, const std::vector<PackedRow>& rows) const {
  Groups groups;
  for (const Group& group : all)
    if (std::any_of(rows.begin(), rows.end(), [&](const PackedRow& row) { return lit(row, group) != 0; })) groups.push_back(group);
  if (groups.empty() || groups.size() > unknowns_max || (rounding_.exact && rows.size() > groups.size() + 8)) return {};
  double evidence = 0, choices = 0;  // bits
  for (const Group& group : groups) choices += std::log2(static_cast<double>(plain_weights(group).size()));
  for (const PackedRow& row : rows) {
    double most = 0, least = HUGE_VAL;
    for (const Group& group : groups) {
      const double here = std::abs(lit(row, group));
      most += here * likely(group);
      for (const double weight : plain_weights(group))
        if (weight != 0 && here != 0) least = std::min(least, std::abs(weight) * rounding_.unit);
    }
    if (!rounding_.exact) least = std::max(least, (rounding_.lone + rounding_.addition * static_cast<double>(groups.size())) * most + row.error);
    if (most > least) evidence += std::log2(most / least);
  }
  Choices tried(*this, groups, rows);
  if (!(rounding_.exact ? tried.by_elimination() : tried.row_by_row()) || tried.agreed().empty()) return {};
  constexpr double bits_to_spare = 5;
  std::vector<Snapped> told = tried.agreed();
  if (choices + bits_to_spare > evidence)
    for (Snapped& weight : told) weight.kind = Kind::open;
  for (std::size_t g = 0; g < groups.size(); ++g)
    if (told[g].kind == Kind::open) told[g].weight = terms_[groups[g].front()].due;
  RowWeights out = spread(groups, told);
  out.dark = dark_in(rows);
  return out;
}

}  // namespace gradledger::ref
