// The loss scale by its documentation, step by step. Written from the meaning of the configuration's keys.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "sim/scenario/scenario.h"

namespace gradledger::ref {

// A static scale stays. A dynamic one starts at 2^initial_scale_power. It doubles with every loss_scale_window steps in a row without
// overflow, growth_lag steps after the last of them if these are good as well, and halves, down to min_loss_scale, at the overflow that
// uses the hysteresis up.
class LossScaleModel {
 public:
  explicit LossScaleModel(const Scenario& scenario)
      : config_(scenario.engine.config.fp16),
        policy_(scenario.loss_scale_policy()),
        patience_(policy_.hysteresis) {
    if (config_.enabled) scale_ = config_.loss_scale > 0 ? config_.loss_scale : std::ldexp(1.0, static_cast<int>(config_.initial_scale_power));
  }

  // In force for the window that comes next.
  double scale() const { return scale_; }

  void step(bool overflow) {
    if (!config_.enabled || config_.loss_scale > 0) return;
    if (overflow) {
      if (patience_ == 1) scale_ = std::max(scale_ / 2, config_.min_loss_scale);
      else --patience_;
      good_steps_ = 0;
      return;
    }
    ++good_steps_;
    const bool grows = good_steps_ > policy_.growth_lag && (good_steps_ - policy_.growth_lag) % config_.loss_scale_window == 0;
    if (grows) scale_ *= 2;
    if (grows || config_.consecutive_hysteresis) patience_ = policy_.hysteresis;
  }

 private:
  Fp16Config config_;
  double scale_ = 1;
  LossScalePolicy policy_;
  std::uint32_t patience_;
  std::uint64_t good_steps_ = 0;  // in a row
};

}  // namespace gradledger::ref
