// Rounding errors of a vector on its way through linear maps. Every error goes through the product of the maps that follow it, not through
// the product of their magnitudes, which grows by the root of the width in each layer: docs/arithmetic.md.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace gradledger::ref {

// n u / (1 - n u): n roundings in a row, in any order of a sum, move a result by at most this part of the magnitudes (Higham, 3.1).
double gamma(double n, double u);

// A matrix of doubles, row by row.
struct MatrixView {
  const double* data = nullptr;
  std::size_t rows = 0, cols = 0;
  bool transposed = false;  // the map is the transpose of what is stored

  double at(std::size_t r, std::size_t c) const { return transposed ? data[c * rows + r] : data[r * cols + c]; }
};

class ErrorChain {
 public:
  // composed: products of maps are formed; else magnitudes are multiplied map by map, which is cheaper and coarser. Bounds are given
  // enlarged by the factor `slack`, for the roundings of the bounds themselves.
  ErrorChain(bool composed, double slack) : composed_(composed), slack_(slack) {}

  // An exact vector.
  void start(std::size_t n);
  // Error that arises here, element by element.
  void add(std::span<const double> local);
  // The vector becomes map x vector, but for what add() says next.
  void multiply(MatrixView map);
  // Each element is multiplied by its factor.
  void scale(std::span<const double> factors);

  // |element - its value| is at most this.
  const std::vector<double>& bound();

 private:
  struct Source {
    std::vector<double> local;  // the errors as they arose
    std::vector<double> map;    // what became of them: rows of today's vector, a column for each of `local`
    double residue = 0;         // Frobenius norm of what fp64 lost of the map
  };

  bool composed_;
  double slack_;
  std::vector<double> fresh_;  // errors that went through no map yet
  std::vector<Source> sources_;
  std::vector<double> bound_, product_;
};

}  // namespace gradledger::ref
