// Factors by which users multiply gradients.
#pragma once

#include <string>

namespace gradledger {

// What a user may multiply a gradient by: an odd number up to odd_factor_max times a power of two, so that probes stay exact in bf16.
inline constexpr double least_factor = 1.0 / 64, largest_factor = 16;
inline constexpr double odd_factor_max = 7;
double odd_part(double factor);
bool exact_factor(double factor);
std::string exact_factors();  // in words

}  // namespace gradledger
