#include "ref/linear.h"

#include <algorithm>
#include <cmath>

namespace gradledger::ref {

Reduced reduce(LinearRows rows, std::size_t unknowns, double nothing) {
  double largest = 0;
  for (const std::vector<double>& row : rows)
    for (std::size_t k = 0; k < unknowns; ++k) largest = std::max(largest, std::abs(row[k]));
  Reduced out;
  std::size_t at = 0;
  for (std::size_t k = 0; k < unknowns && at < rows.size(); ++k) {
    const auto best = std::max_element(rows.begin() + static_cast<std::ptrdiff_t>(at), rows.end(), [&](const auto& a, const auto& b) { return std::abs(a[k]) < std::abs(b[k]); });
    if (std::abs((*best)[k]) <= nothing * largest) continue;
    std::swap(rows[at], *best);
    const double pivot = rows[at][k];
    for (double& x : rows[at]) x /= pivot;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const double factor = rows[r][k];
      if (r == at || factor == 0) continue;
      for (std::size_t c = 0; c < rows[r].size(); ++c) rows[r][c] -= factor * rows[at][c];
      rows[r][k] = 0;
    }
    out.pivots.push_back(k);
    ++at;
  }
  for (std::size_t r = at; r < rows.size(); ++r) out.remainder = std::max(out.remainder, std::abs(rows[r].back()));
  rows.resize(at);
  out.rows = std::move(rows);
  return out;
}

std::vector<std::vector<double>> least_squares(const std::vector<std::vector<double>>& a, std::size_t unknowns) {
  // The normal equations with the identity behind them: (a'a)^-1, then (a'a)^-1 a'.
  LinearRows normal(unknowns, std::vector<double>(2 * unknowns, 0.0));
  for (std::size_t i = 0; i < unknowns; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = 0;
      for (const std::vector<double>& row : a) sum += row[i] * row[j];
      normal[i][j] = normal[j][i] = sum;
    }
    normal[i][unknowns + i] = 1;
  }
  // Squares of numbers of 20 bits, added up over some hundred rows, leave 53 digits less 17 to tell a pivot from what rounding left of nothing.
  const double nothing = std::ldexp(1.0, -36);
  Reduced inverse = reduce(std::move(normal), unknowns, nothing);
  if (inverse.pivots.size() < unknowns) return {};
  std::vector<std::vector<double>> out(unknowns, std::vector<double>(a.size(), 0.0));
  for (std::size_t k = 0; k < unknowns; ++k)
    for (std::size_t i = 0; i < a.size(); ++i)
      for (std::size_t j = 0; j < unknowns; ++j) out[k][i] += inverse.rows[k][unknowns + j] * a[i][j];
  return out;
}

}  // namespace gradledger::ref
