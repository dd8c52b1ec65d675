// ConstantGradScaler and DynamicGradScaler: the loss scale, and what a step makes of it. grad_scaler.py, at 0.16.1.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "sim/frameworks/megatron/config.h"
#include "sim/numeric/dtype.h"

namespace gradledger::megatron {

class GradScaler {
 public:
  // fp16 always has one; other dtypes only a constant one, where it is asked for.
  GradScaler(const OptimizerOptions& options, Dtype model_dtype)
      : options_(options),
        dynamic_(model_dtype == Dtype::float16 && !options.loss_scale),
        enabled_(dynamic_ || (options.loss_scale.has_value() && model_dtype != Dtype::float32)),
        scale_(options.loss_scale.value_or(options.initial_loss_scale)),
        hysteresis_(options.hysteresis) {}

  bool enabled() const { return enabled_; }
  double scale() const { return enabled_ ? scale_ : 1.0; }
  // What gradients are multiplied by: the reciprocal, in fp32.
  double unscale_factor() const { return static_cast<double>(static_cast<float>(1.0 / scale_)); }

  // A backoff does not give the tolerance of overflows back; growth does.
  void update(bool found_inf) {
    if (!dynamic_) return;
    if (found_inf) {
      growth_ = 0;
      if (--hysteresis_ <= 0) scale_ = std::max(scale_ * 0.5, options_.min_loss_scale);
      return;
    }
    if (++growth_ < options_.loss_scale_window) return;
    growth_ = 0;
    hysteresis_ = options_.hysteresis;
    scale_ *= 2.0;
  }

 private:
  OptimizerOptions options_;
  bool dynamic_, enabled_;
  double scale_;
  std::int64_t hysteresis_;
  std::uint32_t growth_ = 0;
};

}  // namespace gradledger::megatron
