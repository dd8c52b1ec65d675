// What lies between the matrix products of a network, element by element, in fp32: bias, activations, the loss. Compiled by nvcc for the
// device and by g++ for its replay in tests. erff and expf are the platform's: docs/arithmetic.md bounds them, no bits are compared.
#pragma once

#include "gpu/elementwise.h"

namespace gradledger::gpu {

inline constexpr float half_root_two = 0.70710678f, density_at_zero = 0.39894228f;  // 1/sqrt(2), 1/sqrt(2 pi), rounded to fp32

struct Gelu {
  GRADLEDGER_HD float operator()(float x) const { return 0.5f * x * (1.0f + erff(x * half_root_two)); }
};

struct Relu {
  GRADLEDGER_HD float operator()(float x) const { return x > 0 ? x : 0.0f; }
};

// From the derivative by an activation's value and the argument x to the one by the argument.
struct GeluBackward {
  GRADLEDGER_HD float operator()(float gradient, float x) const {
    const float distribution = 0.5f * (1.0f + erff(x * half_root_two)), density = expf(-0.5f * x * x) * density_at_zero;
    return gradient * (distribution + x * density);
  }
};

struct ReluBackward {
  GRADLEDGER_HD float operator()(float gradient, float x) const { return x > 0 ? gradient : 0.0f; }
};

// The derivative of the loss by an output.
struct SquaredErrorGradient {
  float factor;
  GRADLEDGER_HD float operator()(float output, float target) const { return (output - target) * factor; }
};

// y[n, o] += bias[o], rows of `out` elements.
struct AddBias {
  static constexpr std::size_t width = pack_width<float>;
  float* y;
  const float* bias;
  std::size_t out;

  bool aligned_at(std::size_t i) const { return is_pack_aligned<width>(y + i); }
  template <std::size_t w>
  GRADLEDGER_HD Pack<float, w> fetch(std::size_t i) const {
    return load<w>(static_cast<const float*>(y + i));
  }
  template <std::size_t w>
  GRADLEDGER_HD void finish(std::size_t i, const Pack<float, w>& in) const {
    Pack<float, w> sum;
    GRADLEDGER_UNROLL
    for (std::size_t k = 0; k < w; ++k) sum[k] = in[k] + bias[(i + k) % out];
    store(y + i, sum);
  }
};

}  // namespace gradledger::gpu
