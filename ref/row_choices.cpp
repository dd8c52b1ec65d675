// Rows that are too few to be solved: which of the weights that contributions are likely to have explain them.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "ref/dtype_facts.h"
#include "ref/equations.h"
#include "ref/row_solver.h"

namespace gradledger::ref {

namespace {

// A sum of free unknowns that has to come to one of a few values. As they are chosen one after the other: whether it still can.
class Line {
 public:
  // by_free: what each free unknown is multiplied by; weights: those that it may have; off: of the values. All sums here and where the choice is tried in full
  // are of at most `terms` rounded numbers.
  Line(double base, std::vector<double> by_free, const std::vector<const std::vector<double>*>& weights, std::vector<double> values, double off, double terms)
      : base_(base), by_free_(std::move(by_free)), values_(std::move(values)), low_(by_free_.size() + 1, 0.0), high_(low_) {
    double largest = std::abs(base);
    for (std::size_t f = by_free_.size(); f-- > 0;) {
      const auto [least, most] = std::minmax_element(weights[f]->begin(), weights[f]->end());
      const double a = by_free_[f] * *least, b = by_free_[f] * *most;
      low_[f] = low_[f + 1] + std::min(a, b);
      high_[f] = high_[f + 1] + std::max(a, b);
      largest += std::max(std::abs(a), std::abs(b));
    }
    off_ = off + 4 * terms * facts_of(Dtype::float64).unit_roundoff() * largest;
    std::sort(values_.begin(), values_.end());
  }

  double base() const { return base_; }
  double more(std::size_t free, double weight) const { return by_free_[free] * weight; }
  // sum: of the base and the first `chosen` of the free unknowns.
  bool can_end(std::size_t chosen, double sum) const {
    const auto value = std::lower_bound(values_.begin(), values_.end(), sum + low_[chosen] - off_);
    return value != values_.end() && *value <= sum + high_[chosen] + off_;
  }

 private:
  double base_;
  std::vector<double> by_free_, values_;
  std::vector<double> low_, high_;  // by how many are chosen: what the others add
  double off_ = 0;
};

}  // namespace

// Tries choices of plain weights: which of them explain all rows.
class RowSolver::Choices {
 public:
  Choices(const RowSolver& solver, const Groups& groups, const std::vector<PackedRow>& rows) : solver_(solver), groups_(groups), rows_(rows), chosen_(groups.size()) {
    for (const Group& group : groups) {
      plain_.push_back(solver.plain_weights(group));
      double& largest = largest_.emplace_back(0.0);
      for (const double weight : plain_.back()) largest = std::max(largest, std::abs(weight));
    }
    for (const PackedRow& row : rows) {
      auto& of_row = terms_.emplace_back();
      for (std::size_t g = 0; g < groups.size(); ++g)
        for (const std::size_t k : groups[g])
          if (row.gradients[k] != 0) of_row.emplace_back(k, g);
      std::sort(of_row.begin(), of_row.end());
    }
  }

  // False: there are too many.
  bool by_elimination();
  bool row_by_row();
  const std::vector<Snapped>& agreed() const { return agreed_; }  // open: choices differ. Empty: none explains them

 private:
  static constexpr double tries_max = 18;  // bits

  void take();
  bool explains(std::size_t row) const;
  void follow(const Elimination& eliminated);
  void choose_free(const Elimination& eliminated, std::size_t at);
  std::vector<Line> lines_of(const Elimination& eliminated) const;
  Line line_of(const Elimination& eliminated, const std::vector<const std::vector<double>*>& weights, std::size_t row) const;
  double off_of(std::size_t row) const;
  // Groups of a row that no row before it has chosen.
  struct RowChoice {
    std::size_t row;
    std::vector<std::size_t> groups;
    std::optional<Line> line;
  };
  bool choose_in_row(std::size_t row);
  bool choose(const RowChoice& choice, std::size_t at, double sum);

  const RowSolver& solver_;
  const Groups& groups_;
  const std::vector<PackedRow>& rows_;
  std::vector<std::vector<double>> plain_;                               // by group
  std::vector<double> largest_;                                          // likewise, of these
  std::vector<std::vector<std::pair<std::size_t, std::size_t>>> terms_;  // by row: those that it has, and their groups
  std::vector<Snapped> chosen_, agreed_;
  std::vector<bool> set_;
  std::uint64_t tries_ = 0;
  std::vector<Line> lines_;
  std::vector<std::vector<double>> sums_;  // by how many are chosen, then by line
  std::size_t failed_ = 0;                 // the line that could not end last: the next choice often ends there too
};

void RowSolver::Choices::take() {
  if (agreed_.empty()) agreed_ = chosen_;
  for (std::size_t g = 0; g < groups_.size(); ++g)
    if (agreed_[g].weight != chosen_[g].weight) agreed_[g].kind = Kind::open;
}

// What is chosen, as RowSolver::explains() has it.
bool RowSolver::Choices::explains(std::size_t row) const {
  Sum sum;
  for (const auto& [k, g] : terms_[row]) sum.add(chosen_[g].weight, rows_[row].gradients[k]);
  return solver_.leaves(sum, rows_[row], false);
}

// Exact rows: what elimination leaves free is chosen, and tells the rest.
bool RowSolver::Choices::by_elimination() {
  Coefficients coefficients;
  std::vector<double> held;
  for (const PackedRow& row : rows_) {
    if (!solver_.surely_exact(row)) continue;
    std::vector<double>& equation = coefficients.emplace_back();
    for (const Group& group : groups_) equation.push_back(solver_.lit(row, group) / solver_.rounding_.unit);
    held.push_back(row.held / solver_.rounding_.unit);
  }
  if (held.empty()) {  // everything is free
    coefficients.emplace_back(groups_.size(), 0.0);
    held.push_back(0);
  }
  // What is free for want of equations alone may be too much.
  double least = HUGE_VAL;
  for (const std::vector<double>& plain : plain_) least = std::min(least, std::log2(static_cast<double>(plain.size())));
  if ((static_cast<double>(groups_.size()) - static_cast<double>(held.size())) * least > tries_max) return false;
  const auto eliminated = eliminate(coefficients, held);
  if (!eliminated) return true;
  double tries = 0;
  for (const std::size_t g : eliminated->free) tries += std::log2(static_cast<double>(plain_[g].size()));
  if (tries > tries_max) return false;
  lines_ = lines_of(*eliminated);
  sums_.assign(eliminated->free.size() + 1, std::vector<double>(lines_.size()));
  for (std::size_t i = 0; i < lines_.size(); ++i) sums_[0][i] = lines_[i].base();
  choose_free(*eliminated, 0);
  return true;
}

// But for choices after which some row, or some unknown that follows, can be nothing that it must be.
void RowSolver::Choices::choose_free(const Elimination& eliminated, std::size_t at) {
  if (at == eliminated.free.size()) return follow(eliminated);
  const std::size_t g = eliminated.free[at];
  for (const double weight : plain_[g]) {
    chosen_[g] = {weight, Kind::plain};
    const auto can_end = [&](std::size_t i) {
      sums_[at + 1][i] = sums_[at][i] + lines_[i].more(at, weight);
      return lines_[i].can_end(at + 1, sums_[at + 1][i]);
    };
    if (failed_ < lines_.size() && !can_end(failed_)) continue;
    std::size_t i = 0;
    while (i < lines_.size() && can_end(i)) ++i;
    if (i == lines_.size()) choose_free(eliminated, at + 1);
    else failed_ = i;
  }
}

std::vector<Line> RowSolver::Choices::lines_of(const Elimination& eliminated) const {
  std::vector<const std::vector<double>*> weights;  // by free unknown
  for (const std::size_t g : eliminated.free) weights.push_back(&plain_[g]);
  std::vector<Line> out;
  // As follow() has it.
  for (const Elimination::Told& told : eliminated.told)
    out.emplace_back(told.base, told.follows, weights, plain_[told.unknown], 0.0, static_cast<double>(eliminated.free.size() + 2));
  for (std::size_t row = 0; row < rows_.size(); ++row) out.push_back(line_of(eliminated, weights, row));
  return out;
}

// What a row must hold, where some unknowns follow from the free ones. Sums may be of much larger numbers than they come to.
Line RowSolver::Choices::line_of(const Elimination& eliminated, const std::vector<const std::vector<double>*>& weights, std::size_t row) const {
  const PackedRow& r = rows_[row];
  const double u = facts_of(Dtype::float64).unit_roundoff(), free = static_cast<double>(eliminated.free.size());
  double base = 0, snapped = 0, all = 0;  // snapped: what it changes that an unknown which follows is taken to be plain
  std::vector<double> by_free;
  for (const std::size_t g : eliminated.free) {
    by_free.push_back(solver_.lit(r, groups_[g]));
    all += std::abs(by_free.back()) * largest_[g];
  }
  for (const Elimination::Told& told : eliminated.told) {
    const double lit = solver_.lit(r, groups_[told.unknown]);
    double magnitude = std::abs(told.base);
    base += lit * told.base;
    for (std::size_t f = 0; f < by_free.size(); ++f) {
      by_free[f] += lit * told.follows[f];
      magnitude += std::abs(told.follows[f]) * largest_[eliminated.free[f]];
    }
    snapped += std::abs(lit) * 2 * (free + 2) * u * magnitude;
    all += std::abs(lit) * magnitude;
  }
  const double roundings = static_cast<double>(terms_[row].size() + eliminated.told.size()) + free + 2;
  return {base, std::move(by_free), weights, {r.held}, off_of(row) + snapped + 4 * roundings * u * all, roundings};
}

// As leaves() has it: no bound there is above that of the largest weights, rounded. With the roundings of the sum that is asked there.
double RowSolver::Choices::off_of(std::size_t row) const {
  double most = 0;
  for (const auto& [k, g] : terms_[row]) most += largest_[g] * std::abs(static_cast<double>(rows_[row].gradients[k]));
  const auto terms = static_cast<double>(terms_[row].size());
  return rows_[row].error + solver_.bound(most, terms, 0, true) + 4 * (terms + 2) * facts_of(Dtype::float64).unit_roundoff() * most;
}

// The rest must be plain too. A plain weight that fp64 cannot tell from what follows is put to the rows, which are exact.
void RowSolver::Choices::follow(const Elimination& eliminated) {
  for (const Elimination::Told& told : eliminated.told) {
    double weight = told.base, magnitude = std::abs(told.base);
    for (std::size_t f = 0; f < eliminated.free.size(); ++f) {
      const double term = told.follows[f] * chosen_[eliminated.free[f]].weight;
      weight += term;
      magnitude += std::abs(term);
    }
    const double rounding = 2 * static_cast<double>(eliminated.free.size() + 2) * facts_of(Dtype::float64).unit_roundoff() * magnitude;
    const std::vector<double>& plain = plain_[told.unknown];
    const auto fits = std::find_if(plain.begin(), plain.end(), [&](double p) { return std::abs(weight - p) <= rounding; });
    if (fits == plain.end()) return;
    chosen_[told.unknown] = {*fits, Kind::plain};
  }
  for (std::size_t row = 0; row < rows_.size(); ++row)
    if (!explains(row)) return;
  take();
}

// Rows of few terms each: the terms of one row are chosen, and the row is asked before the next.
bool RowSolver::Choices::row_by_row() {
  set_.assign(groups_.size(), false);
  for (std::size_t g = 0; g < groups_.size(); ++g) chosen_[g] = {0, Kind::plain};
  return choose_in_row(0);
}

bool RowSolver::Choices::choose_in_row(std::size_t row) {
  if (row == rows_.size()) {
    take();
    return true;
  }
  double base = 0;
  RowChoice choice{row, {}, {}};
  std::vector<double> by_free;
  std::vector<const std::vector<double>*> weights;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const double lit = solver_.lit(rows_[row], groups_[g]);
    if (set_[g]) base += lit * chosen_[g].weight;
    if (set_[g] || lit == 0) continue;
    choice.groups.push_back(g);
    by_free.push_back(lit);
    weights.push_back(&plain_[g]);
  }
  choice.line.emplace(base, std::move(by_free), weights, std::vector<double>{rows_[row].held}, off_of(row), static_cast<double>(terms_[row].size() + groups_.size() + 2));
  return choose(choice, 0, base);
}

// sum: of what is chosen in this row.
bool RowSolver::Choices::choose(const RowChoice& choice, std::size_t at, double sum) {
  constexpr std::uint64_t steps_max = 1u << 15;
  if (++tries_ > steps_max) return false;
  if (at == choice.groups.size()) return !explains(choice.row) || choose_in_row(choice.row + 1);
  const std::size_t group = choice.groups[at];
  set_[group] = true;
  bool all = true;
  for (const double weight : plain_[group]) {
    chosen_[group] = {weight, Kind::plain};
    const double more = sum + choice.line->more(at, weight);
    if (all && choice.line->can_end(at + 1, more)) all = choose(choice, at + 1, more);
  }
  chosen_[group] = {0, Kind::plain};
  set_[group] = false;
  return all;
}

// How many bits more there are in the rows than in the choice of a plain weight for every group. A row has as many as there are steps in its largest
// term; sums of several terms vary little more than that.
double RowSolver::bits_to_spare(const Groups& groups, const std::vector<PackedRow>& rows) const {
  double out = 0;
  for (const Group& group : groups) out -= std::log2(static_cast<double>(plain_weights(group).size()));
  for (const PackedRow& row : rows) {
    double largest = 0, all = 0, least = HUGE_VAL;
    for (const Group& group : groups) {
      const double here = std::abs(lit(row, group));
      largest = std::max(largest, here * likely(group));
      all += here * likely(group);
      for (const double weight : plain_weights(group))
        if (weight != 0 && here != 0) least = std::min(least, std::abs(weight) * rounding_.unit);
    }
    if (!rounding_.exact) least = std::max(least, (rounding_.lone + rounding_.addition * static_cast<double>(groups.size())) * all + row.error);
    if (largest > least) out += std::log2(largest / least);
  }
  return out;
}

// By group, whether rows have bits enough for its weight: those that have it count, and the choices for what these alone have.
std::vector<bool> RowSolver::told_by_bits(const Groups& groups, const std::vector<PackedRow>& rows) const {
  std::vector<std::vector<bool>> has(groups.size(), std::vector<bool>(rows.size()));  // by group, then by row
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::size_t i = 0; i < rows.size(); ++i) has[g][i] = lit(rows[i], groups[g]) != 0;
  std::map<std::vector<bool>, bool> told;  // by the rows that count
  std::vector<bool> out(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto [known, fresh] = told.try_emplace(has[g], false);
    if (fresh) {
      Groups these;
      std::vector<PackedRow> with;
      for (std::size_t other = 0; other < groups.size(); ++other) {
        bool elsewhere = false;
        for (std::size_t i = 0; i < rows.size() && !elsewhere; ++i) elsewhere = has[other][i] && !has[g][i];
        if (!elsewhere) these.push_back(groups[other]);
      }
      for (std::size_t i = 0; i < rows.size(); ++i)
        if (has[g][i]) with.push_back(rows[i]);
      known->second = bits_to_spare(these, with) >= bits_needed;
    }
    out[g] = known->second;
  }
  return out;
}

// Every choice of plain weights that explains the rows. Only what all of these agree in is told, and only where chance would hardly have left one.
std::optional<RowWeights> RowSolver::enumerate(const Groups& all, const std::vector<PackedRow>& rows) const {
  Groups groups;
  for (const Group& group : all)
    if (std::any_of(rows.begin(), rows.end(), [&](const PackedRow& row) { return lit(row, group) != 0; })) groups.push_back(group);
  constexpr std::size_t groups_max = 32;  // exact elimination of more takes long
  if (groups.empty() || groups.size() > (rounding_.exact ? groups_max : unknowns_max) || (rounding_.exact && rows.size() > groups.size() + 8)) return {};
  Choices tried(*this, groups, rows);
  if (!(rounding_.exact ? tried.by_elimination() : tried.row_by_row()) || tried.agreed().empty()) return {};
  std::vector<Snapped> told = tried.agreed();
  const std::vector<bool> by_bits = told_by_bits(groups, rows);
  for (std::size_t g = 0; g < groups.size(); ++g)
    if (!by_bits[g]) told[g].kind = Kind::open;
  for (std::size_t g = 0; g < groups.size(); ++g)
    if (told[g].kind == Kind::open) told[g].weight = terms_[groups[g].front()].due;
  RowWeights out = spread(groups, told);
  out.dark = dark_in(rows);
  return out;
}

}  // namespace gradledger::ref
