#include "ref/error_chain.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <Eigen/Core>

namespace gradledger::ref {
namespace {

constexpr double epsilon64 = std::numeric_limits<double>::epsilon();

// At least the Frobenius norm: a sum of n squares in fp64 is short by n roundings at most.
double norm_of(std::span<const double> values) {
  double squares = 0;
  for (double x : values) squares += x * x;
  return std::sqrt(squares) * (1 + static_cast<double>(values.size() + 4) * epsilon64);
}

double norm_of(MatrixView map) { return norm_of(std::span(map.data, map.rows * map.cols)); }

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Stored = Eigen::Map<const Matrix>;

Eigen::Index index(std::size_t i) { return static_cast<Eigen::Index>(i); }

// out = map x right, right of map.cols rows.
void product(MatrixView map, std::span<const double> right, std::vector<double>& out) {
  const std::size_t columns = right.size() / map.cols;
  out.resize(map.rows * columns);
  Eigen::Map<Matrix> result(out.data(), index(map.rows), index(columns));
  const Stored second(right.data(), index(map.cols), index(columns));
  if (map.transposed) result.noalias() = Stored(map.data, index(map.cols), index(map.rows)).transpose() * second;
  else result.noalias() = Stored(map.data, index(map.rows), index(map.cols)) * second;
}

}  // namespace

double gamma(double n, double u) { return n * u < 1 ? n * u / (1 - n * u) : std::numeric_limits<double>::infinity(); }

void ErrorChain::start(std::size_t n) {
  sources_.clear();
  fresh_.assign(n, 0.0);
}

void ErrorChain::add(std::span<const double> local) {
  for (std::size_t i = 0; i < fresh_.size(); ++i) fresh_[i] += local[i];
}

void ErrorChain::multiply(MatrixView map) {
  const double size = norm_of(map);
  for (Source& source : sources_) {
    product(map, source.map, product_);
    source.residue = size * (source.residue + gamma(static_cast<double>(map.cols), epsilon64) * norm_of(source.map));
    source.map.swap(product_);
  }
  const bool exact = std::all_of(fresh_.begin(), fresh_.end(), [](double e) { return e == 0; });
  if (composed_ && !exact) {
    Source source;
    source.local = fresh_;
    source.map.reserve(map.rows * map.cols);
    for (std::size_t r = 0; r < map.rows; ++r)
      for (std::size_t c = 0; c < map.cols; ++c) source.map.push_back(map.at(r, c));
    sources_.push_back(std::move(source));
  }
  std::vector<double> through(map.rows, 0.0);
  if (!composed_ && !exact)
    for (std::size_t r = 0; r < map.rows; ++r)
      for (std::size_t c = 0; c < map.cols; ++c) through[r] += std::abs(map.at(r, c)) * fresh_[c];
  fresh_.swap(through);
}

void ErrorChain::scale(std::span<const double> factors) {
  double largest = 0;
  for (double factor : factors) largest = std::max(largest, std::abs(factor));
  for (std::size_t i = 0; i < fresh_.size(); ++i) fresh_[i] *= std::abs(factors[i]);
  for (Source& source : sources_) {
    source.residue = largest * (source.residue + epsilon64 * norm_of(source.map));
    for (std::size_t r = 0; r < fresh_.size(); ++r)
      for (std::size_t k = 0; k < source.local.size(); ++k) source.map[r * source.local.size() + k] *= factors[r];
  }
}

const std::vector<double>& ErrorChain::bound() {
  bound_ = fresh_;
  for (const Source& source : sources_) {
    const double lost = source.residue > 0 ? source.residue * norm_of(source.local) : 0;
    for (std::size_t r = 0; r < bound_.size(); ++r) {
      double sum = lost;
      for (std::size_t k = 0; k < source.local.size(); ++k) sum += std::abs(source.map[r * source.local.size() + k]) * source.local[k];
      bound_[r] += sum;
    }
  }
  for (double& e : bound_) e = std::isnan(e) ? std::numeric_limits<double>::infinity() : e * slack_;
  return bound_;
}

}  // namespace gradledger::ref
