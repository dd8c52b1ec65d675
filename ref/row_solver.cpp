#include "ref/row_solver.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "ref/ledger.h"
#include "ref/linear.h"
#include "sim/base/rational.h"

namespace gradledger::ref {
namespace {

constexpr std::size_t unknowns_max = 96;
constexpr std::uint32_t any_window = ~std::uint32_t{0};
constexpr double lost_in_fp64 = 1e-8;  // of the largest weight, by elimination with numbers of at most 20 bits

}  // namespace

bool RowWeights::any_open() const { return std::find(open.begin(), open.end(), true) != open.end(); }

std::optional<RowWeights> RowSolver::solve(const std::vector<PackedRow>& rows) const {
  if (auto share = share_of_due(rows, false)) return share;
  const std::vector<Groups> sets{window(), with_earlier(1, false), with_earlier(any_window, false), with_earlier(1, true), with_earlier(any_window, true)};
  for (const Groups& groups : sets)
    if (groups.size() <= unknowns_max)
      if (auto found = fit(groups, rows, false)) return found;
  if (!rounding_.exact) return {};
  for (const Groups& groups : {window(), with_earlier(1, true)})
    if (auto found = enumerate(groups, rows)) return found;
  // Weights that the formats do not hold exactly.
  if (auto share = share_of_due(rows, true)) return share;
  return fit(window(), rows, true);
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
    if (weights.value[k] == 0) continue;
    const double term = weights.value[k] * static_cast<double>(row.gradients[k]);
    sum += term;
    magnitude += std::abs(term);
    least = std::min(least, std::abs(weights.value[k]));
    ++terms;
  }
  return std::abs(row.held - sum) <= row.error + (magnitude > 0 ? bound(magnitude, terms, least, rounded) : 0);
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
  if (!std::all_of(rows.begin(), rows.end(), [&](const PackedRow& row) { return explains(out, row, rounded); })) return {};
  const auto bits = static_cast<double>(rows.size() - 1) * (exact ? rounding_.precision - 2 : -std::log2(2 * off + lost_in_fp64) / 2);
  constexpr double bits_needed = 12;
  return bits >= bits_needed || (*out.of_due == 0 && exact) ? std::optional(out) : std::nullopt;
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
  RowWeights out{std::vector<double>(terms_.size(), 0.0), std::vector<bool>(terms_.size(), false), {}};
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
  const std::size_t used = std::min(rows.size(), 6 * asked.size() + 8);
  std::vector<std::vector<double>> a(used, std::vector<double>(asked.size()));
  for (std::size_t i = 0; i < used; ++i)
    for (std::size_t j = 0; j < asked.size(); ++j) a[i][j] = lit(rows[i], groups[asked[j]]) / rounding_.unit;
  const auto inverse = least_squares(a, asked.size());
  if (inverse.empty()) return {};
  std::vector<Snapped> found(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) found[g] = {terms_[groups[g].front()].due, Kind::open};
  std::vector<double> weights(asked.size(), 0.0);
  double largest = 0;
  for (std::size_t j = 0; j < asked.size(); ++j) {
    for (std::size_t i = 0; i < used; ++i) weights[j] += inverse[j][i] * rows[i].held / rounding_.unit;
    largest = std::max(largest, std::abs(weights[j]));
  }
  const bool exact = rounding_.exact && !rounded;
  std::size_t odd = 0;
  for (std::size_t j = 0; j < asked.size(); ++j) {
    double error = lost_in_fp64 * largest;
    for (std::size_t i = 0; i < used; ++i) {
      double off = rows[i].error;
      if (!exact) {
        double magnitude = 0;
        for (std::size_t l = 0; l < asked.size(); ++l) magnitude += std::abs(a[i][l] * weights[l]);
        off += bound(magnitude * rounding_.unit, static_cast<double>(asked.size()), 0, true);
      }
      error += std::abs(inverse[j][i]) * off / rounding_.unit;
    }
    found[asked[j]] = snapped(weights[j], error, groups[asked[j]]);
    odd += found[asked[j]].kind == Kind::odd;
  }
  // With weights of whatever kind as many rows as there are unknowns are always explained.
  if (odd > 0 && rows.size() < asked.size() + 2) return {};
  const RowWeights out = spread(groups, found);
  if (!std::all_of(rows.begin(), rows.end(), [&](const PackedRow& row) { return explains(out, row, rounded); })) return {};
  return out;
}

// Too few rows: every choice of plain weights that explains them. Only what all of these agree in is told, and only where chance would hardly have left one.
std::optional<RowWeights> RowSolver::enumerate(const Groups& groups, const std::vector<PackedRow>& rows) const {
  if (groups.empty() || groups.size() > unknowns_max || rows.size() > groups.size() + 8) return {};
  LinearRows system;
  double evidence = 0;  // bits
  for (const PackedRow& row : rows) {
    std::vector<double>& equation = system.emplace_back();
    double most = 0, least = HUGE_VAL;
    for (const Group& group : groups) {
      equation.push_back(lit(row, group) / rounding_.unit);
      if (equation.back() == 0) continue;
      most += equation.back() * likely(group);
      for (const double weight : plain_weights(group))
        if (weight != 0) least = std::min(least, std::abs(weight));
    }
    equation.push_back(row.held / rounding_.unit);
    if (most > least) evidence += std::log2(most / least);
  }
  constexpr double nothing = 1e-9;
  const Reduced reduced = reduce(std::move(system), groups.size(), nothing);
  std::vector<std::vector<double>> plain;
  double choices = 0, tries = 0;  // bits
  for (std::size_t g = 0; g < groups.size(); ++g) {
    plain.push_back(plain_weights(groups[g]));
    const double bits = std::log2(static_cast<double>(plain.back().size()));
    choices += bits;
    if (std::find(reduced.pivots.begin(), reduced.pivots.end(), g) == reduced.pivots.end()) tries += bits;
  }
  constexpr double tries_max = 18, bits_to_spare = 5;
  if (tries > tries_max) return {};
  std::vector<std::size_t> free;
  for (std::size_t g = 0; g < groups.size(); ++g)
    if (std::find(reduced.pivots.begin(), reduced.pivots.end(), g) == reduced.pivots.end()) free.push_back(g);
  std::vector<Snapped> chosen(groups.size()), agreed;
  const auto take = [&] {
    for (std::size_t r = 0; r < reduced.rows.size(); ++r) {
      double weight = reduced.rows[r].back();
      for (const std::size_t g : free) weight -= reduced.rows[r][g] * chosen[g].weight;
      const std::size_t pivot = reduced.pivots[r];
      const auto fits = std::find_if(plain[pivot].begin(), plain[pivot].end(), [&](double p) { return std::abs(weight - p) <= lost_in_fp64 * likely(groups[pivot]); });
      if (fits == plain[pivot].end()) return;
      chosen[pivot] = {*fits, Kind::plain};
    }
    const RowWeights weights = spread(groups, chosen);
    if (!std::all_of(rows.begin(), rows.end(), [&](const PackedRow& row) { return explains(weights, row); })) return;
    if (agreed.empty()) agreed = chosen;
    for (std::size_t g = 0; g < groups.size(); ++g)
      if (agreed[g].weight != chosen[g].weight) agreed[g].kind = Kind::open;
  };
  const std::function<void(std::size_t)> choose = [&](std::size_t at) {
    if (at == free.size()) return take();
    for (const double weight : plain[free[at]]) {
      chosen[free[at]] = {weight, Kind::plain};
      choose(at + 1);
    }
  };
  choose(0);
  if (agreed.empty()) return {};
  if (choices + bits_to_spare > evidence)
    for (Snapped& weight : agreed) weight.kind = Kind::open;
  for (std::size_t g = 0; g < groups.size(); ++g)
    if (agreed[g].kind == Kind::open) agreed[g].weight = terms_[groups[g].front()].due;
  return spread(groups, agreed);
}

}  // namespace gradledger::ref
