#include "ref/equations.h"

#include <algorithm>
#include <cmath>

#include <Eigen/LU>
#include <Eigen/QR>
#include <boost/multiprecision/cpp_int.hpp>
#include <boost/multiprecision/eigen.hpp>

#include "ref/dtype_facts.h"

namespace gradledger::ref {
namespace {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

// Relative error of a sum of n products in any order, and of computing that bound itself (Higham, chapter 3).
double rounding_of(std::size_t n) {
  const double nu = static_cast<double>(n + 4) * facts_of(Dtype::float64).unit_roundoff();
  return nu / (1 - nu);
}

Eigen::Index index(std::size_t i) { return static_cast<Eigen::Index>(i); }

}  // namespace

struct LeftInverse::Parts {
  Matrix coefficients;
  Matrix inverse;    // unknowns x equations
  Vector remainder;  // by unknown: the row's sum of |1 - inverse x coefficients|
  double worst = 0;  // the largest of them, below 1
};

std::optional<LeftInverse> LeftInverse::of(const Coefficients& coefficients) {
  if (coefficients.empty() || coefficients.front().empty() || coefficients.size() < coefficients.front().size()) return {};
  const std::size_t equations = coefficients.size(), unknowns = coefficients.front().size();
  Matrix a(index(equations), index(unknowns));
  for (std::size_t i = 0; i < equations; ++i) a.row(index(i)) = Eigen::Map<const Vector>(coefficients[i].data(), index(unknowns)).transpose();
  const Eigen::HouseholderQR<Matrix> qr(a);
  const Matrix q = qr.householderQ() * Matrix::Identity(index(equations), index(unknowns));
  const auto parts = std::make_shared<Parts>();
  parts->coefficients = a;
  parts->inverse = qr.matrixQR().topRows(index(unknowns)).triangularView<Eigen::Upper>().solve(q.transpose());
  if (!parts->inverse.allFinite()) return {};
  // 1 - inverse x a, and what rounding may have hidden of it.
  const Matrix remainder = (Matrix::Identity(index(unknowns), index(unknowns)) - parts->inverse * a).cwiseAbs() +
                           rounding_of(equations + 1) * (parts->inverse.cwiseAbs() * a.cwiseAbs() + Matrix::Identity(index(unknowns), index(unknowns)));
  parts->remainder = remainder.rowwise().sum();
  parts->worst = parts->remainder.maxCoeff();
  if (!(parts->worst < 1)) return {};
  return LeftInverse(parts);
}

// With R = 1 - X A, and A x = b + e: x - X b = R x + X e, so that |x| is at most (|X b| + |X e|) / (1 - |R|).
LeftInverse::Solution LeftInverse::solve(const std::vector<double>& right, const std::vector<double>& off) const {
  const Eigen::Map<const Vector> b(right.data(), index(right.size())), e(off.data(), index(off.size()));
  const Vector found = parts_->inverse * b;
  const Vector moved = parts_->inverse.cwiseAbs() * (e + rounding_of(right.size()) * b.cwiseAbs());
  const double largest = (found.cwiseAbs() + moved).maxCoeff() / (1 - parts_->worst);
  const Vector error = (1 + rounding_of(right.size())) * (moved + largest * parts_->remainder);
  return {{found.begin(), found.end()}, {error.begin(), error.end()}};
}

// What X leaves of b is b - A X b. With A x = b + e and R = 1 - X A that is A R x - (1 - A X) e.
bool LeftInverse::can_hold(const std::vector<double>& right, const std::vector<double>& off) const {
  const Matrix &a = parts_->coefficients, &x = parts_->inverse;
  const Eigen::Map<const Vector> b(right.data(), index(right.size())), e(off.data(), index(off.size()));
  const Vector found = x * b;
  const Vector left = b - a * found;
  const double rounding = rounding_of(right.size());
  const Matrix both = a.cwiseAbs() * x.cwiseAbs(), identity = Matrix::Identity(index(right.size()), index(right.size()));
  const Vector moved = x.cwiseAbs() * (e + rounding * b.cwiseAbs());
  const double largest = (found.cwiseAbs() + moved).maxCoeff() / (1 - parts_->worst);
  const Vector allowed =
      ((identity - a * x).cwiseAbs() + rounding * (identity + both)) * e + a.cwiseAbs() * (largest * parts_->remainder) + 2 * rounding * (b.cwiseAbs() + both * b.cwiseAbs());
  return (left.cwiseAbs().array() <= (1 + rounding) * allowed.array()).all();
}

std::optional<Elimination> eliminate(const Coefficients& coefficients, const std::vector<double>& right) {
  using Exact = boost::multiprecision::number<boost::multiprecision::cpp_rational_backend, boost::multiprecision::et_off>;
  using Numbers = Eigen::Matrix<Exact, Eigen::Dynamic, Eigen::Dynamic>;
  if (coefficients.empty()) return {};
  const std::size_t equations = coefficients.size(), unknowns = coefficients.front().size();
  Numbers a(index(equations), index(unknowns)), b(index(equations), 1);
  for (std::size_t i = 0; i < equations; ++i) {
    for (std::size_t k = 0; k < unknowns; ++k) a(index(i), index(k)) = Exact(coefficients[i][k]);
    b(index(i), 0) = Exact(right[i]);
  }
  Eigen::FullPivLU<Numbers> lu;
  lu.setThreshold(Exact(0));
  lu.compute(a);
  const Numbers base = lu.solve(b);  // with all that is free 0
  if (a * base != b) return {};
  Elimination out;
  const auto rank = static_cast<std::size_t>(lu.rank());
  const auto at = [&](std::size_t i) { return static_cast<std::size_t>(lu.permutationQ().indices()(index(i))); };
  for (std::size_t i = rank; i < unknowns; ++i) out.free.push_back(at(i));
  const Numbers kernel = lu.kernel();  // a column for each free unknown, in which that is 1
  for (std::size_t i = 0; i < rank; ++i) {
    Elimination::Told& told = out.told.emplace_back();
    told.unknown = at(i);
    told.base = static_cast<double>(base(index(told.unknown), 0));
    for (std::size_t f = 0; f < out.free.size(); ++f) told.follows.push_back(static_cast<double>(kernel(index(told.unknown), index(f))));
  }
  return out;
}

}  // namespace gradledger::ref
