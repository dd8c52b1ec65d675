// Rows that one factor explains: a share of what is due, or one of the ways in which loops are known to weigh a window.
#include <algorithm>
#include <cmath>

#include "ref/dtype_facts.h"
#include "ref/row_solver.h"
#include "sim/base/rational.h"

namespace gradledger::ref {

// One factor for all of what is due. Few rows tell it only if it is a simple one.
std::optional<RowWeights> RowSolver::share_of_due(const std::vector<PackedRow>& rows, bool rounded) const {
  const PackedRow* largest = nullptr;
  for (const PackedRow& row : rows)
    if (row.due != 0 && (!largest || std::abs(row.due) > std::abs(largest->due))) largest = &row;
  if (!largest) return {};
  const bool exact = rounding_.exact && !rounded;
  constexpr double fine = 1.0 / 4096;
  if (!exact && rounding_.exact && rounding_.lone > fine) return {};  // coarse sums are near many others
  const double share = largest->held / largest->due;
  double off = largest->error / std::abs(largest->due);
  if (!exact) off += std::abs(share) * (rounding_.lone + rounding_.addition * static_cast<double>(window_terms())) * largest->due_magnitude / std::abs(largest->due);
  // What is due is a sum of products, each of one rounding.
  off += static_cast<double>(2 * terms_.size() + 1) * facts_of(Dtype::float64).unit_roundoff() * std::abs(share) * largest->due_magnitude / std::abs(largest->due);
  constexpr std::int64_t parts_max = 64;
  const auto simple = simplest_within(share, off, parts_max);
  RowWeights out;
  out.of_due = simple ? value_of(*simple) : share;
  out.odd_share = !simple;
  out.dark = dark_in(rows);
  if (!std::all_of(rows.begin(), rows.end(), [&](const PackedRow& row) { return explains(out, row, rounded); })) return {};
  // What is due, and off by rounding where there is none: that is no other weight.
  const auto due_but_rounded = [&](const PackedRow& row) { return explains({{}, {}, {}, 1.0}, row, true); };
  if (rounding_.exact && out.odd_share && std::all_of(rows.begin(), rows.end(), due_but_rounded)) return {};
  if (*out.of_due == 0) return exact ? std::optional(out) : std::nullopt;
  // The share itself takes up the bits of one row. Of one that is odd only how far it lies from what is due is evidence: rows would have the rest without it.
  const double apart = out.odd_share ? std::min(1.0, std::abs(*out.of_due - 1)) : 1.0;
  const auto bits_of = [&](const PackedRow& row) { return std::max(0.0, bits(row, off_of_share(*out.of_due, row, rounded) / std::abs(*out.of_due)) + std::log2(apart)); };
  double evidence = -bits_of(*largest);
  for (const PackedRow& row : rows) evidence += bits_of(row);
  return evidence >= bits_needed ? std::optional(out) : std::nullopt;
}

// The one known way to weigh the window's terms that explains all rows.
std::optional<RowWeights> RowSolver::of_a_shape(const std::vector<PackedRow>& rows) const {
  std::optional<RowWeights> out;
  for (const WeightShape& shape : shapes_) {
    const auto sum_of = [&](const PackedRow& row) {
      std::pair<double, double> sum{0, 0};
      for (std::size_t k = 0; k < terms_.size(); ++k) {
        sum.first += shape[k] * static_cast<double>(row.gradients[k]);
        sum.second += std::abs(shape[k] * static_cast<double>(row.gradients[k]));
      }
      return sum;
    };
    const auto largest = std::max_element(rows.begin(), rows.end(), [&](const PackedRow& a, const PackedRow& b) { return std::abs(sum_of(a).first) < std::abs(sum_of(b).first); });
    const auto [sum, magnitude] = sum_of(*largest);
    if (sum == 0) continue;
    const double factor = largest->held / sum;
    const double off = (largest->error + bound(magnitude * std::abs(factor), static_cast<double>(window_terms()), 0, true)) / std::abs(sum);
    constexpr std::int64_t parts_max = 1 << 12;
    const auto simple = simplest_within(factor, off, parts_max);
    if (!simple || *simple == 0) continue;
    RowWeights weights{{}, std::vector<bool>(terms_.size(), false), dark_in(rows), {}};
    for (const double weight : shape) weights.value.push_back(weight * value_of(*simple));
    if (!std::all_of(rows.begin(), rows.end(), [&](const PackedRow& row) { return explains(weights, row); })) continue;
    double evidence = -bits(*largest);
    for (const PackedRow& row : rows) evidence += bits(row);
    if (evidence < bits_needed || out) return {};
    out = std::move(weights);
  }
  return out;
}

}  // namespace gradledger::ref
