// The root that ends a norm, element by element in place.
#pragma once

#include "gpu/optimizers.h"
#include "gpu/pack.h"

namespace gradledger::gpu {

struct SquareRoot {
  static constexpr std::size_t width = pack_width<float>;
  float* target;

  bool aligned_at(std::size_t i) const { return is_pack_aligned<width>(target + i); }
  template <std::size_t w>
  GRADLEDGER_HD Pack<float, w> fetch(std::size_t i) const {
    return load<w>(static_cast<const float*>(target + i));
  }
  template <std::size_t w>
  GRADLEDGER_HD void finish(std::size_t i, const Pack<float, w>& in) const {
    Pack<float, w> out;
    GRADLEDGER_UNROLL
    for (std::size_t k = 0; k < w; ++k) out[k] = numeric::canonical(root(in[k]));
    store(target + i, out);
  }
};

}  // namespace gradledger::gpu
