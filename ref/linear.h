// Small linear systems in fp64, with what they leave open.
#pragma once

#include <cstddef>
#include <vector>

namespace gradledger::ref {

// Rows of coefficients with their right side behind them.
using LinearRows = std::vector<std::vector<double>>;

// Gauss and Jordan with the largest pivot of each column: the rows that are left, reduced; which unknown each of them tells goes into `pivots`.
// A pivot below `nothing` times the largest coefficient is none. Rows without unknowns are dropped, and `remainder` is the largest of their right sides.
struct Reduced {
  LinearRows rows;
  std::vector<std::size_t> pivots;  // by row
  double remainder = 0;
};
Reduced reduce(LinearRows rows, std::size_t unknowns, double nothing);

// The least squares of a x = b as a matrix that is applied to b: unknowns x rows. Empty where the columns of a depend on each other.
std::vector<std::vector<double>> least_squares(const std::vector<std::vector<double>>& a, std::size_t unknowns);

}  // namespace gradledger::ref
