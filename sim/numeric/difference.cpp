#include "sim/numeric/difference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/numeric/dispatch_dtype.h"

namespace gradledger::numeric {

Difference difference(Dtype dtype, const void* a, const void* b, const float* bounds, std::size_t n) {
  Difference found = no_difference;
  with_dtype(dtype, [&](auto t) {
    using T = decltype(t);
    for (std::size_t i = 0; i < n; ++i) {
      const float x = widen(static_cast<const T*>(a)[i]);
      const float y = widen(static_cast<const T*>(b)[i]);
      if (bits_of(x) == bits_of(y)) continue;  // widening keeps distinct values and payloads apart
      if (found.differing++ == 0) found.first = i;
      double distance = std::abs(static_cast<double>(x) - static_cast<double>(y));
      if (std::isnan(distance)) distance = std::numeric_limits<double>::quiet_NaN();
      found.distance = std::max(found.distance, std::bit_cast<std::uint64_t>(distance));
      if (bounds && !(distance <= static_cast<double>(bounds[i]))) ++found.beyond;
    }
  });
  return found;
}

}  // namespace gradledger::numeric
