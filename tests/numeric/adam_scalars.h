// The scalars of a step, as the optimizers' tests use them on the host and on devices.
#pragma once

#include <cmath>

#include "sim/numeric/kernels.h"

namespace gradledger::testing {

inline numeric::AdamScalars scalars_at(int step, float weight_decay, bool decoupled) {
  numeric::AdamScalars s;
  s.learning_rate = 0.003f;
  s.beta1 = 0.9f;
  s.one_minus_beta1 = static_cast<float>(1.0 - 0.9);
  s.beta2 = 0.999f;
  s.one_minus_beta2 = static_cast<float>(1.0 - 0.999);
  s.epsilon = 0x1p-27f;
  s.weight_decay = weight_decay;
  s.bias_correction1 = static_cast<float>(1.0 - std::pow(0.9, step));
  s.bias_correction2 = static_cast<float>(1.0 - std::pow(0.999, step));
  s.decoupled_decay = decoupled;
  return s;
}

}  // namespace gradledger::testing
