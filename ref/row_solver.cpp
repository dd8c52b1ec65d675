#include "ref/row_solver.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "ref/dtype_facts.h"
#include "ref/equations.h"
#include "ref/ledger.h"
#include "sim/base/rational.h"

namespace gradledger::ref {
namespace {

constexpr std::uint32_t any_window = ~std::uint32_t{0};

// The largest power of two that a weight is a whole number of.
double granule(double weight) {
  constexpr std::uint64_t fraction = (std::uint64_t{1} << 52) - 1;
  const double size = std::abs(weight);
  const auto word = std::bit_cast<std::uint64_t>(size);
  return (word & fraction) == 0 ? size : size - std::bit_cast<double>(word & (word - 1));  // what its last bit is worth
}

}  // namespace

bool RowWeights::any_open() const { return std::find(open.begin(), open.end(), true) != open.end(); }

std::optional<RowWeights> RowSolver::solve(const std::vector<PackedRow>& rows) const {
  auto share = share_of_due(rows, false);
  // One that the formats do not hold has sums near those of other weights, which may leave just what is held.
  const auto held_exactly = [&](const PackedRow& row) { return off_of_share(*share->of_due, row, false) == row.error; };
  if (share && (!rounding_.exact || std::all_of(rows.begin(), rows.end(), held_exactly))) return share;
  if (auto shape = of_a_shape(rows)) return shape;
  const std::vector<Groups> sets{window(), groups(Alike::none, 1, false), groups(Alike::none, any_window, false), groups(Alike::none, 1, true),
                                 groups(Alike::none, any_window, true)};
  for (const Groups& set : sets)
    if (auto found = fit(set, rows, false); found && !found->any_open()) return found;
  // Fewer unknowns, where all rows can do with them.
  constexpr std::size_t spare = 4;
  for (const Alike alike : {Alike::micro_batch, Alike::boundary, Alike::first})
    for (const std::uint32_t ago : {0u, 1u, any_window})
      if (auto found = fit(groups(alike, ago, true), rows, false, spare); found && !found->any_open()) return found;
  // Too few rows for that, or too coarse ones: weights that are likely.
  for (const Groups& set : {window(), groups(Alike::none, 1, true)})
    if (auto found = enumerate(set, rows); found && !found->any_open()) return found;
  if (share) {
    share->near_others = true;
    return share;
  }
  if (rounding_.exact) {
    // Weights that the formats do not hold exactly.
    if (auto rounded = share_of_due(rows, true)) return rounded;
    for (const Groups& set : any_divided() ? sets : std::vector<Groups>{window()})
      if (auto found = fit(set, rows, true); found && !found->any_open()) return found;
  }
  // A part of them, where nothing else can be in the rows.
  if (auto found = fit(groups(Alike::none, any_window, false), rows, false)) return found;
  return enumerate(window(), rows);
}

std::size_t RowSolver::window_terms() const {
  return static_cast<std::size_t>(std::count_if(terms_.begin(), terms_.end(), [](const Term& t) { return t.windows_ago == 0; }));
}

// Earlier windows, merged, have two weights: that of the rank's own and that of its peers'.
RowSolver::Groups RowSolver::groups(Alike window, std::uint32_t windows_ago, bool earlier_merged) const {
  Groups out;
  std::map<std::tuple<std::uint32_t, std::uint32_t, bool>, Group> merged;
  for (std::size_t k = 0; k < terms_.size(); ++k) {
    const Term& term = terms_[k];
    if (term.windows_ago > windows_ago) continue;
    if (term.windows_ago > 0 ? !earlier_merged : window == Alike::none) {
      out.push_back({k});
      continue;
    }
    std::uint32_t kind = 0;
    if (term.windows_ago == 0) kind = window == Alike::micro_batch ? term.micro_batch : window == Alike::boundary ? term.boundary : term.micro_batch == 0;
    merged[{term.windows_ago, kind, term.own_rank}].push_back(k);
  }
  for (auto& [which, group] : merged) out.push_back(std::move(group));
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

// By how much a share of what is due may miss what is held.
double RowSolver::off_of_share(double share, const PackedRow& row, bool rounded) const {
  if (share == 0 || row.due_magnitude == 0) return row.error;
  double finest = HUGE_VAL;
  for (std::size_t k = 0; k < terms_.size(); ++k)
    if (terms_[k].due != 0 && row.gradients[k] != 0) finest = std::min(finest, granule(share * terms_[k].due));
  return row.error + bound(row.due_magnitude * std::abs(share), static_cast<double>(window_terms()), finest, rounded);
}

bool RowSolver::explains(const RowWeights& weights, const PackedRow& row, bool rounded) const {
  if (weights.of_due) {
    const double share = *weights.of_due;
    return std::abs(row.held - share * row.due) <= off_of_share(share, row, rounded);
  }
  Sum sum;
  for (std::size_t k = 0; k < terms_.size(); ++k) {
    if (row.gradients[k] == 0) continue;
    if (weights.open[k]) return true;
    if (!weights.dark.empty() && weights.dark[k]) return false;
    sum.add(weights.value[k], row.gradients[k]);
  }
  return leaves(sum, row, rounded);
}

void RowSolver::Sum::add(double weight, float gradient) {
  if (weight == 0) return;
  const double term = weight * static_cast<double>(gradient);
  value += term;
  magnitude += std::abs(term);
  least = std::min(least, granule(weight));
  ++terms;
}

bool RowSolver::leaves(const Sum& sum, const PackedRow& row, bool rounded) const {
  return std::abs(row.held - sum.value) <= row.error + (sum.magnitude > 0 ? bound(sum.magnitude, sum.terms, sum.least, rounded) : 0);
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
    for (const double weight : {term.averaged, term.own, term.due, term.averaged * term.left, term.own * term.left})
      if (weight != 0) least = std::min(least, std::abs(weight));
  return row.error == 0 && std::abs(row.held) <= std::ldexp(least * rounding_.unit, rounding_.precision);
}

double RowSolver::bits(const PackedRow& row) const { return bits(row, row.error + (rounding_.exact ? 0 : bound(row.due_magnitude, static_cast<double>(window_terms()), 0, true))); }

// A contribution that is not there, or twice, moves the row by its term: by so many steps of what can be told there.
double RowSolver::bits(const PackedRow& row, double off) const {
  double largest = 0, least = HUGE_VAL;
  for (std::size_t k = 0; k < terms_.size(); ++k) {
    if (terms_[k].due == 0 || row.gradients[k] == 0) continue;
    largest = std::max(largest, std::abs(terms_[k].due * static_cast<double>(row.gradients[k])));
    least = std::min(least, std::abs(terms_[k].due) * rounding_.unit);
  }
  const double told = std::max(off, least);
  return largest > told ? std::log2(largest / std::max(told, std::ldexp(largest, -20))) : 0;
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
  for (const double weight : {term.due, 0.0, term.averaged, term.own, 2 * term.due, term.averaged * term.left, term.own * term.left}) add(weight);
  return out;
}

bool RowSolver::is_left(double weight, const Group& group) const {
  const Term& term = terms_[group.front()];
  return term.left != 1 && (weight == term.averaged * term.left || weight == term.own * term.left);
}

double RowSolver::to_next_plain(double weight, const Group& group) const {
  double out = HUGE_VAL;
  for (const double other : plain_weights(group))
    if (other != weight && !is_left(other, group)) out = std::min(out, std::abs(other - weight));
  return out;
}

bool RowSolver::any_divided() const {
  return std::any_of(terms_.begin(), terms_.end(), [](const Term& term) { return term.left != 1; });
}

RowSolver::Snapped RowSolver::snapped(double weight, double error, const Group& group) const {
  if (!(error < Ledger::tolerance_max * std::max(likely(group), std::abs(weight)))) return {terms_[group.front()].due, Kind::open};
  // Several that are near are none, but for what divisions have left of a weight where that is too little to tell from nothing.
  std::vector<double> near = plain_weights(group);
  std::erase_if(near, [&](double plain) { return std::abs(weight - plain) > error; });
  if (near.size() > 1) std::erase_if(near, [&](double plain) { return plain != 0 && std::abs(plain) <= error && is_left(plain, group); });
  if (near.size() > 1) return {terms_[group.front()].due, Kind::open};
  // One that lies closer to its neighbours than the error reaches is no more likely than what lies between them.
  if (near.size() == 1) return {near.front(), 2 * error < to_next_plain(near.front(), group) ? Kind::plain : Kind::open};
  if (weight == 0) return {0, Kind::odd};
  // Others only where the next one is well outside of the error.
  constexpr double times_max = 8;
  for (const double base : {terms_[group.front()].averaged, terms_[group.front()].own}) {
    if (base == 0) continue;
    const double times = std::round(weight / base), parts = std::round(base / weight);
    if (std::abs(times) <= times_max && times != 0 && std::abs(weight - times * base) <= error && 4 * error < std::abs(base)) return {times * base, Kind::odd};
    if (std::abs(parts) <= times_max && parts != 0 && std::abs(weight - base / parts) <= error && 4 * error * std::abs(parts * (parts + 1)) < std::abs(base))
      return {base / parts, Kind::odd};
  }
  const double dyadic = std::ldexp(std::round(std::ldexp(weight, 12 - std::ilogb(weight))), std::ilogb(weight) - 12);
  if (rounding_.exact && std::abs(weight - dyadic) <= error) return {dyadic, Kind::odd};
  constexpr double fine = 1.0 / 4096;
  if (error > fine * std::abs(weight)) return {terms_[group.front()].due, Kind::open};
  constexpr std::int64_t parts_max = 1 << 12;
  const auto simple = simplest_within(weight, error, parts_max);
  return {simple ? value_of(*simple) : weight, Kind::odd};
}

// What no group has is not there, unless something is open: then nobody knows what else is in the rows.
RowWeights RowSolver::spread(const Groups& groups, const std::vector<Snapped>& of_groups) const {
  const bool all_told = std::none_of(of_groups.begin(), of_groups.end(), [](const Snapped& weight) { return weight.kind == Kind::open; });
  RowWeights out{std::vector<double>(terms_.size(), 0.0), std::vector<bool>(terms_.size(), !all_told), {}, {}};
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const std::size_t k : groups[g]) {
      out.value[k] = of_groups[g].weight;
      out.open[k] = of_groups[g].kind == Kind::open;
    }
  return out;
}

// Small sums were hardly rounded, whatever the weights are.
std::vector<PackedRow> RowSolver::rows_to_solve(const std::vector<PackedRow>& rows, std::size_t unknowns, bool exact) const {
  std::vector<PackedRow> out;
  for (const PackedRow& row : rows)
    if (!exact || surely_exact(row)) out.push_back(row);
  if (exact) std::stable_sort(out.begin(), out.end(), [](const PackedRow& a, const PackedRow& b) { return std::abs(a.held) < std::abs(b.held); });
  const std::size_t wanted = 6 * unknowns + 8;
  if (out.size() > wanted) out.resize(wanted);
  return out;
}

// Weights by group, all of which some row has, with the error that roundings of the rows leave in each. None where they depend on each other, or no weights of
// these groups alone leave what the rows hold.
std::vector<RowSolver::Snapped> RowSolver::solved(const Groups& groups, const std::vector<PackedRow>& rows, bool exact) const {
  Coefficients coefficients(rows.size(), std::vector<double>(groups.size()));
  std::vector<double> held, off(rows.size(), 0.0);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t j = 0; j < groups.size(); ++j) coefficients[i][j] = lit(rows[i], groups[j]) / rounding_.unit;
    held.push_back(rows[i].held / rounding_.unit);
  }
  const auto inverse = LeftInverse::of(coefficients);
  if (!inverse) return {};
  const std::vector<double> weights = inverse->solve(held, off).value;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    double magnitude = 0;
    for (std::size_t j = 0; j < groups.size(); ++j) magnitude += std::abs(coefficients[i][j] * weights[j]);
    off[i] = rows[i].error / rounding_.unit + (exact ? 0 : bound(magnitude, static_cast<double>(groups.size()), 0, true));
  }
  if (!inverse->can_hold(held, off)) return {};  // something else is in the rows
  const std::vector<double> error = inverse->solve(held, off).error;
  if (!exact)
    if (auto told = unrounded(groups, rows, weights); !told.empty()) return told;
  std::vector<Snapped> out;
  for (std::size_t j = 0; j < groups.size(); ++j) out.push_back(snapped(weights[j], error[j], groups[j]));
  return out;
}

// Rows that could have been rounded and were not, as more of them than there are weights show: weights near those that were found leave just what is held.
std::vector<RowSolver::Snapped> RowSolver::unrounded(const Groups& groups, const std::vector<PackedRow>& rows, const std::vector<double>& weights) const {
  constexpr std::size_t spare = 8;
  constexpr int bits = 12;  // of a weight
  if (rows.size() < groups.size() + spare) return {};
  std::vector<Snapped> out;
  for (std::size_t j = 0; j < groups.size(); ++j) {
    const double finest = std::ldexp(likely(groups[j]), -bits), weight = weights[j];
    const std::vector<double> plain = plain_weights(groups[j]);
    const auto nearest = std::min_element(plain.begin(), plain.end(), [&](double a, double b) { return std::abs(weight - a) < std::abs(weight - b); });
    if (std::abs(weight - *nearest) < finest) out.push_back({*nearest, Kind::plain});
    else out.push_back({std::ldexp(std::round(std::ldexp(weight, bits - std::ilogb(weight))), std::ilogb(weight) - bits), Kind::odd});
  }
  for (const PackedRow& row : rows) {
    double sum = 0, magnitude = 0;
    for (std::size_t j = 0; j < groups.size(); ++j) {
      sum += out[j].weight * lit(row, groups[j]);
      magnitude += std::abs(out[j].weight) * lit(row, groups[j]);
    }
    const double rounding = 2 * static_cast<double>(terms_.size() + 2) * facts_of(Dtype::float64).unit_roundoff() * magnitude;
    if (std::abs(row.held - sum) > rounding) return {};
  }
  return out;
}

// With weights of whatever kind as many rows as there are unknowns are always explained.
bool RowSolver::borne_out(const std::vector<Snapped>& found, const Groups& groups, const std::vector<PackedRow>& rows, bool exact) const {
  std::set<double> odd;
  for (const Snapped& weight : found) {
    if (weight.kind != Kind::odd) continue;
    odd.insert(weight.weight);
    const Term& term = terms_[groups[static_cast<std::size_t>(&weight - found.data())].front()];
    if (weight.weight < 0 && std::min({term.due, term.averaged, term.own}) >= 0) return false;  // nobody takes gradients away
    // What was never rounded comes from divisions by powers of two.
    constexpr double finest = 1.0 / 4096;
    if (exact && granule(weight.weight) < finest * std::abs(weight.weight)) return false;
  }
  // One weight of a kind that nobody expects is a wrong scale. Several of them are told by rows to spare alone: else they may be a fit of something else.
  if (odd.size() > 2 && rows.size() < 2 * groups.size() + 8) return false;
  for (std::size_t j = 0; j < groups.size(); ++j)
    if (found[j].kind == Kind::odd && !has_rows_to_spare(groups, rows, j)) return false;
  return exact || odd.empty() || bits_beyond(found, groups, rows) >= bits_needed;
}

// How many bits those rows have together that are more than there are unknowns, where sums are rounded: the coarsest ones count, and one that comes again does not.
double RowSolver::bits_beyond(const std::vector<Snapped>& found, const Groups& groups, const std::vector<PackedRow>& rows) const {
  std::set<std::vector<double>> met;
  std::vector<double> bits;
  for (const PackedRow& row : rows) {
    std::vector<double> of_row(groups.size());
    double magnitude = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      of_row[g] = lit(row, groups[g]);
      magnitude += std::abs(found[g].weight * of_row[g]);
    }
    if (magnitude > 0 && met.insert(std::move(of_row)).second)
      bits.push_back(std::max(0.0, std::log2(magnitude / (row.error + bound(magnitude, static_cast<double>(groups.size()), 0, true)))));
  }
  std::sort(bits.begin(), bits.end());
  bits.resize(bits.size() - std::min(bits.size(), groups.size()));
  return std::accumulate(bits.begin(), bits.end(), 0.0);
}

// Whether rows that have the group are two more than the unknowns that they alone have. A row that comes again is no other one.
bool RowSolver::has_rows_to_spare(const Groups& groups, const std::vector<PackedRow>& rows, std::size_t group) const {
  std::vector<bool> elsewhere(groups.size(), false);
  std::set<std::vector<double>> with;
  std::vector<double> of_row(groups.size());
  for (const PackedRow& row : rows) {
    for (std::size_t g = 0; g < groups.size(); ++g) of_row[g] = lit(row, groups[g]);
    if (of_row[group] != 0) {
      if (with.size() < groups.size() + 2) with.insert(of_row);
      continue;
    }
    for (std::size_t g = 0; g < groups.size(); ++g)
      if (of_row[g] != 0) elsewhere[g] = true;
  }
  return with.size() >= static_cast<std::size_t>(std::count(elsewhere.begin(), elsewhere.end(), false)) + 2;
}

std::optional<RowWeights> RowSolver::fit(const Groups& groups, const std::vector<PackedRow>& rows, bool rounded, std::size_t spare) const {
  if (groups.size() > unknowns_max) return {};
  std::vector<std::size_t> asked;  // groups that some row has
  Groups those;
  for (std::size_t g = 0; g < groups.size(); ++g)
    if (std::any_of(rows.begin(), rows.end(), [&](const PackedRow& row) { return lit(row, groups[g]) != 0; })) {
      asked.push_back(g);
      those.push_back(groups[g]);
    }
  const bool exact = rounding_.exact && !rounded;
  if (asked.empty() || rows.size() < asked.size() + spare) return {};
  const std::vector<PackedRow> best = rows_to_solve(rows, asked.size(), exact);
  if (best.size() < asked.size() + spare) return {};
  const std::vector<Snapped> weights = solved(those, best, exact);
  if (weights.empty() || !borne_out(weights, those, rows, exact)) return {};
  // As many rows as unknowns are explained by something, which lies near a weight that is likely by chance.
  const std::vector<bool> by_bits = told_by_bits(those, rows);
  for (std::size_t j = 0; j < those.size(); ++j)
    if (!by_bits[j] && !has_rows_to_spare(those, rows, j)) return {};
  std::vector<Snapped> found(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) found[g] = {terms_[groups[g].front()].due, Kind::plain};
  for (std::size_t j = 0; j < asked.size(); ++j) found[asked[j]] = weights[j];
  RowWeights out = spread(groups, found);
  out.dark = dark_in(rows);
  if (!std::all_of(rows.begin(), rows.end(), [&](const PackedRow& row) { return explains(out, row, rounded); })) return {};
  return out;
}

}  // namespace gradledger::ref
