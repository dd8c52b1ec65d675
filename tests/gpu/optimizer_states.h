// States from which the optimizers' tests start.
#pragma once

#include <cmath>

#include "tests/gpu/comparison.h"
#include "tests/numeric/adam_scalars.h"

namespace gradledger::testing {

inline float ordinary(Random& random) { return static_cast<float>(static_cast<double>(random.next() >> 40) / (1 << 23)) - 1; }

// Parameter, gradient and moments: ordinary values, every second one special where asked. A negative second moment gives NaN.
inline std::vector<Array> state_of(std::size_t n, bool adversarial, std::size_t gradient_offset, std::size_t offset) {
  const std::vector<float> values = interesting_values<float>();
  Random random(41 + n);
  std::vector<std::vector<float>> columns(4, std::vector<float>(n));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t column = 0; column < 4; ++column) {
      float x = adversarial && random.below(2) ? values[random.below(values.size())] : ordinary(random);
      if (column == 3 && random.below(8)) x = std::abs(x);
      columns[column][i] = x;
    }
  return {Array(columns[0], offset), Array(columns[1], gradient_offset), Array(columns[2], offset), Array(columns[3], offset)};
}

inline float* floats(std::byte* address) { return reinterpret_cast<float*>(address); }

}  // namespace gradledger::testing
