// The loss scale by its documentation, step by step. Written from the meaning of the configuration's keys.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "sim/scenario/scenario.h"

namespace gradledger::ref {

// A static scale stays. A dynamic one starts at 2^initial_scale_power. It doubles at a step without overflow that comes after a multiple of
// loss_scale_window such steps in a row, and halves, down to min_loss_scale, at the overflow that uses the hysteresis up.
class LossScaleModel {
 public:
  explicit LossScaleModel(const Scenario& scenario)
      : config_(scenario.engine.config.fp16),
        hysteresis_(scenario.engine.config.zero.stage == 0 ? 1 : config_.hysteresis),  // FP16_Optimizer has none
        patience_(hysteresis_) {
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
    const bool grows = good_steps_ > 0 && good_steps_ % config_.loss_scale_window == 0;
    if (grows) scale_ *= 2;
    if (grows || config_.consecutive_hysteresis) patience_ = hysteresis_;
    ++good_steps_;
  }

 private:
  Fp16Config config_;
  double scale_ = 1;
  std::uint32_t hysteresis_, patience_;
  std::uint64_t good_steps_ = 0;  // in a row
};

}  // namespace gradledger::ref
