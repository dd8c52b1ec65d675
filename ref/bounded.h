// Values with a proven error: |what a correct run may hold - value| <= error. Running error analysis after Wilkinson; each rule is in
// Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., chapters 2 to 4. fp64's own rounding is covered by one more fp64
// rounding on every error.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace gradledger::ref {

struct Bounded {
  double value = 0;
  double error = 0;

  bool exact() const { return error == 0; }
  double magnitude() const { return std::abs(value) + error; }
};

// One rounding into a format: unit roundoff u, smallest subnormal tiny.
struct Rounding {
  double u = 0;
  double tiny = 0;

  double of(double magnitude) const { return u * magnitude + tiny / 2; }
};

inline double widened(double error) { return error * (1.0 + 4 * std::numeric_limits<double>::epsilon()); }

inline Bounded rounded(Bounded x, Rounding r) { return {x.value, widened(x.error + r.of(x.magnitude()))}; }

// Adding an exact zero changes nothing and rounds nothing.
inline Bounded add(Bounded a, Bounded b, Rounding r) {
  if (b.value == 0 && b.exact()) return a;
  if (a.value == 0 && a.exact()) return b;
  return rounded({a.value + b.value, a.error + b.error}, r);
}

inline Bounded mul(Bounded a, Bounded b, Rounding r) {
  const double error = std::abs(a.value) * b.error + std::abs(b.value) * a.error + a.error * b.error;
  return rounded({a.value * b.value, widened(error)}, r);
}

// Infinite error where the divisor may be zero.
inline Bounded div(Bounded a, Bounded b, Rounding r) {
  const double least = std::abs(b.value) - b.error;
  if (!(least > 0)) return {a.value / b.value, std::numeric_limits<double>::infinity()};
  const double quotient = a.value / b.value;
  return rounded({quotient, widened((a.error + std::abs(quotient) * b.error) / least)}, r);
}

// Precondition: the true operand is not negative.
inline Bounded root(Bounded a, Rounding r) {
  const double middle = std::sqrt(std::max(a.value, 0.0));
  const double low = std::sqrt(std::max(a.value - a.error, 0.0));
  const double high = std::sqrt(std::max(a.value + a.error, 0.0));
  return rounded({middle, widened(std::max(high - middle, middle - low))}, r);
}

// A hyperparameter: exact in the configuration, rounded once to fp32 for the device.
inline Bounded hyperparameter(double value, Rounding r) { return {value, r.of(std::abs(value))}; }

}  // namespace gradledger::ref
