// Two arrays of one dtype, compared where they lie.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "sim/numeric/dtype.h"

namespace gradledger::numeric {

// What a comparison found. An element differs where its bits do: +0 and -0 differ by 0, two NaNs of equal bits do not differ.
// The distance of elements that differ is |a - b| rounded to fp64, and NaN where that is none (one is NaN): more than any number.
struct Difference {
  std::uint64_t differing;  // how many
  std::uint64_t first;      // least index of one that differs, or `none`
  std::uint64_t distance;   // the largest, as fp64 bits: these are ordered as the distances are
  std::uint64_t beyond;     // how many that differ are not within their bound; 0 where no bounds are given

  static constexpr std::uint64_t none = ~std::uint64_t{0};
  double largest_distance() const { return std::bit_cast<double>(distance); }
  bool operator==(const Difference&) const = default;
};

// Of arrays that agree.
inline constexpr Difference no_difference{0, Difference::none, 0, 0};

// An element is within its bound where distance <= bound, so within none that is NaN. bounds may be null.
Difference difference(Dtype dtype, const void* a, const void* b, const float* bounds, std::size_t n);

}  // namespace gradledger::numeric
