// The base optimizers as element-wise operations: the formulas of sim/numeric/kernels.h, one rounded operation after the other.
#pragma once

#include <cmath>

#include "gpu/pack.h"
#include "sim/numeric/kernels.h"

namespace gradledger::gpu {

// Correctly rounded on both sides: nvcc's default is sqrt.rn.
GRADLEDGER_HD inline float root(float x) { return ::sqrtf(x); }

struct Sgd {
  static constexpr std::size_t width = pack_width<float>;
  float* parameter;
  const float* gradient;
  float learning_rate;
  float weight_decay;

  bool aligned_at(std::size_t i) const { return is_pack_aligned<width>(parameter + i) && is_pack_aligned<width>(gradient + i); }
  GRADLEDGER_HD float updated(float p, float g) const {
    if (weight_decay != 0) g = numeric::fma(p, weight_decay, g);
    return numeric::fma(g, -learning_rate, p);
  }
  template <std::size_t w>
  struct Both {
    Pack<float, w> p, g;
  };
  template <std::size_t w>
  GRADLEDGER_HD Both<w> fetch(std::size_t i) const {
    return {load<w>(static_cast<const float*>(parameter + i)), load<w>(gradient + i)};
  }
  template <std::size_t w>
  GRADLEDGER_HD void finish(std::size_t i, const Both<w>& in) const {
    Pack<float, w> out;
    GRADLEDGER_UNROLL
    for (std::size_t k = 0; k < w; ++k) out[k] = updated(in.p[k], in.g[k]);
    store(parameter + i, out);
  }
};

// Parameter, gradient and moments of w elements in registers.
template <class G, std::size_t w>
struct AdamPack {
  Pack<float, w> p;
  Pack<G, w> g;
  Pack<float, w> m, v;
};

// Parameter, gradient and both moments; Formula::update(p, g, m, v) changes all but the gradient.
template <class Formula>
struct Adam {
  static constexpr std::size_t width = pack_width<float>;
  float* parameter;
  const float* gradient;
  float* first;
  float* second;
  Formula formula;

  bool aligned_at(std::size_t i) const {
    return is_pack_aligned<width>(parameter + i) && is_pack_aligned<width>(gradient + i) && is_pack_aligned<width>(first + i) && is_pack_aligned<width>(second + i);
  }
  template <std::size_t w>
  GRADLEDGER_HD AdamPack<float, w> fetch(std::size_t i) const {
    return {load<w>(static_cast<const float*>(parameter + i)), load<w>(gradient + i), load<w>(static_cast<const float*>(first + i)),
            load<w>(static_cast<const float*>(second + i))};
  }
  template <std::size_t w>
  GRADLEDGER_HD void finish(std::size_t i, AdamPack<float, w> x) const {
    GRADLEDGER_UNROLL
    for (std::size_t k = 0; k < w; ++k) formula.update(x.p[k], x.g[k], x.m[k], x.v[k]);
    store(first + i, x.m);
    store(second + i, x.v);
    store(parameter + i, x.p);
  }
};

// DeepSpeed's FusedAdam, without contraction.
struct FusedAdamFormula {
  numeric::AdamScalars s;

  GRADLEDGER_HD void update(float& p, float g, float& m, float& v) const {
    using namespace numeric;
    if (!s.decoupled_decay) g = add(g, mul(s.weight_decay, p));
    m = add(mul(s.beta1, m), mul(s.one_minus_beta1, g));
    v = add(mul(s.beta2, v), mul(mul(s.one_minus_beta2, g), g));
    const float denominator = add(root(div(v, s.bias_correction2)), s.epsilon);
    float step = div(div(m, s.bias_correction1), denominator);
    if (s.decoupled_decay) step = add(step, mul(s.weight_decay, p));
    p = canonical(p - mul(s.learning_rate, step));
  }
};

// DeepSpeed's CPU Adam, with the fused multiply-adds of its vector body.
struct CpuAdamFormula {
  numeric::AdamScalars s;
  float inverse_root, step_size, decay;

  explicit CpuAdamFormula(const numeric::AdamScalars& scalars)
      : s(scalars),
        inverse_root(1.0f / root(scalars.bias_correction2)),
        step_size(-scalars.learning_rate / scalars.bias_correction1),
        decay(-scalars.learning_rate * scalars.weight_decay) {}

  GRADLEDGER_HD void update(float& p, float g, float& m, float& v) const {
    using namespace numeric;
    if (s.weight_decay > 0 && !s.decoupled_decay) g = fma(p, s.weight_decay, g);
    m = fma(g, s.one_minus_beta1, mul(m, s.beta1));
    v = fma(mul(g, g), s.one_minus_beta2, mul(v, s.beta2));
    const float denominator = fma(root(v), inverse_root, s.epsilon);
    if (s.weight_decay > 0 && s.decoupled_decay) p = fma(p, decay, p);
    p = fma(div(m, denominator), step_size, p);
  }
};

}  // namespace gradledger::gpu
