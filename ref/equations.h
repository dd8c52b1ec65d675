// Systems of linear equations: solutions with a proven bound, and exactly what equations of whole numbers leave free. The algebra is Eigen's.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace gradledger::ref {

// Coefficients by equation and unknown.
using Coefficients = std::vector<std::vector<double>>;

// A matrix that very nearly inverts the coefficients, with how far it is from doing so. Nothing depends on how well it was computed: the
// bound holds for any matrix, and is no bound only where that is far from an inverse.
class LeftInverse {
 public:
  // None where unknowns depend on each other, or nearly.
  static std::optional<LeftInverse> of(const Coefficients& coefficients);

  struct Solution {
    std::vector<double> value, error;  // by unknown: the true one is no further off
  };
  // right, off: what each equation is seen to amount to, and how far off that may be.
  Solution solve(const std::vector<double>& right, const std::vector<double>& off) const;

  // Whether some values of the unknowns make of each equation what it is seen to amount to, within off. Always, where there are no more equations than unknowns.
  bool can_hold(const std::vector<double>& right, const std::vector<double>& off) const;

 private:
  struct Parts;
  explicit LeftInverse(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

  std::shared_ptr<const Parts> parts_;
};

// What equations leave free, and how the rest follows: unknown = base + sum of follows[i] x free unknown i, for one that is not free. Exact
// but for one rounding of each number.
struct Elimination {
  struct Told {
    std::size_t unknown = 0;
    double base = 0;
    std::vector<double> follows;  // by free unknown
  };
  std::vector<std::size_t> free;
  std::vector<Told> told;
};

// In rational numbers. None where no values of the unknowns fit all equations. Precondition: everything is finite.
std::optional<Elimination> eliminate(const Coefficients& coefficients, const std::vector<double>& right);

}  // namespace gradledger::ref
