#include "sim/scenario/factor.h"

#include <cmath>

namespace gradledger {

double odd_part(double factor) {
  int exponent;
  double odd = std::frexp(factor, &exponent);
  while (odd != std::trunc(odd)) odd *= 2;
  return odd;
}

std::string exact_factors() {
  return "from 1/" + std::to_string(static_cast<int>(1 / least_factor)) + " to " + std::to_string(static_cast<int>(largest_factor)) + ", an odd number up to " +
         std::to_string(static_cast<int>(odd_factor_max)) + " times a power of two";
}

bool exact_factor(double factor) { return std::isfinite(factor) && factor >= least_factor && factor <= largest_factor && odd_part(factor) <= odd_factor_max; }

}  // namespace gradledger
