// The loss scale of fp16, static and dynamic.
#pragma once

#include <algorithm>
#include <bit>

#include "sim/engine/engine.h"
#include "sim/engine/state_fold.h"
#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/deepspeed/config.h"
#include "sim/frameworks/deepspeed/settings.h"

namespace gradledger {

// DeepSpeed has two dynamic scalers: that of the ZeRO wrappers counts hysteresis and raises at the minimum; that of
// FP16_Optimizer does neither, and grows one step after a full window in every release.
class LossScaler {
 public:
  LossScaler() = default;
  LossScaler(const Fp16Config& config, bool zero_wrapper, ScaleGrowth growth)
      : dynamic_(config.loss_scale == 0),
        counts_hysteresis_(zero_wrapper),
        consecutive_(config.consecutive_hysteresis),
        lag_(growth == ScaleGrowth::after_a_window ? 0 : 1),
        window_(config.loss_scale_window),
        hysteresis_max_(config.hysteresis),
        hysteresis_(config.hysteresis),
        minimum_(config.min_loss_scale),
        scale_(dynamic_ ? power_of_two(config.initial_scale_power) : config.loss_scale),
        before_update_(scale_) {}

  // Of the ZeRO wrappers, which have none but in fp16.
  static LossScaler of_zero(const DeepSpeedConfig& config, const Behaviour& behaviour) {
    if (!config.fp16.enabled) return fixed(1.0);
    const bool of_the_class = config.fp16.leaves_the_scaler_open() && behaviour.scaler_defaults == ScalerDefaults::of_the_class;
    return LossScaler(of_the_class ? Fp16Config::of_the_class() : config.fp16, true, behaviour.scale_growth);
  }

  static LossScaler fixed(double scale) {
    LossScaler scaler;
    scaler.scale_ = scaler.before_update_ = scale;
    return scaler;
  }

  double scale() const { return scale_; }
  double before_update() const { return before_update_; }  // what it was before the last update

  void fold(StateFold& f) const {
    f.number(std::bit_cast<std::uint64_t>(scale_));
    if (!dynamic_) return;
    f.number(static_cast<std::uint64_t>(iteration_ - last_overflow_));
    f.number(hysteresis_);
  }

  void update(bool overflow) {
    before_update_ = scale_;
    if (!dynamic_) return;
    if (overflow) {
      shrink();
      last_overflow_ = iteration_;
    } else {
      grow();
    }
    ++iteration_;
  }

 private:
  static double power_of_two(std::uint32_t exponent) {
    double x = 1.0;
    for (std::uint32_t i = 0; i < exponent; ++i) x *= 2.0;
    return x;
  }

  void shrink() {
    if (!counts_hysteresis_) {
      scale_ = std::max(scale_ / 2.0, minimum_);
      return;
    }
    if (hysteresis_ > 1) {
      --hysteresis_;
      return;
    }
    if (scale_ == minimum_) throw FrameworkError{"Exception", "Current loss scale already at minimum - cannot decrease scale anymore"};
    scale_ = std::max(scale_ / 2.0, minimum_);
  }

  void grow() {
    if (counts_hysteresis_ && consecutive_) hysteresis_ = hysteresis_max_;
    const std::int64_t good_steps = iteration_ - last_overflow_ - lag_;  // in a row; this one is counted without a lag
    if (good_steps <= 0 || good_steps % window_ != 0) return;
    if (counts_hysteresis_ && !consecutive_) hysteresis_ = hysteresis_max_;
    scale_ *= 2.0;
  }

  bool dynamic_ = false;
  bool counts_hysteresis_ = false;
  bool consecutive_ = false;
  std::int64_t lag_ = 0;
  std::int64_t window_ = 1;
  std::uint32_t hysteresis_max_ = 1;
  std::uint32_t hysteresis_ = 1;
  double minimum_ = 1;
  double scale_ = 1;
  double before_update_ = 1;
  std::int64_t iteration_ = 0;
  std::int64_t last_overflow_ = -1;
};

}  // namespace gradledger
