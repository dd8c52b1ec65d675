#include "sim/frameworks/torch/scaler_contract.h"

namespace gradledger::torch {

void add_scaler(const std::optional<GradScalerConfig>& scaler, Contract& contract) {
  if (!scaler) return;
  contract.skips_nonfinite = true;
  contract.loss_scale.initial = scaler->init_scale;
  contract.loss_scale.dynamic = true;
  contract.loss_scale.window = scaler->growth_interval;
  contract.loss_scale.minimum = 0;
}

GradScalerConfig scaler_of(const LossScalePolicy& policy) {
  GradScalerConfig out;
  out.init_scale = policy.initial;
  if (policy.dynamic) out.growth_interval = policy.window;
  return out;
}

}  // namespace gradledger::torch
