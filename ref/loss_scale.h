// The loss scale by its documentation, step by step. Written from the meaning of the configuration's keys.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sim/scenario/contract.h"

namespace gradledger::ref {

// A static scale stays. A dynamic one doubles with every `window` steps in a row without overflow, growth_lag steps behind the last of them
// if these are good as well, and halves, down to the minimum, at the overflow that uses the hysteresis up.
class LossScaleModel {
 public:
  explicit LossScaleModel(const LossScalePolicy& policy) : policy_(policy), scale_(policy.initial), patience_(policy.hysteresis) {}

  // In force for the window that comes next.
  double scale() const { return scale_; }

  void step(bool overflow) {
    if (!policy_.dynamic) return;
    if (overflow) {
      if (patience_ == 1) scale_ = std::max(scale_ / 2, policy_.minimum);
      else --patience_;
      good_steps_ = 0;
      return;
    }
    ++good_steps_;
    const bool grows = good_steps_ > policy_.growth_lag && (good_steps_ - policy_.growth_lag) % policy_.window == 0;
    if (grows) scale_ *= 2;
    if (grows || policy_.consecutive_hysteresis) patience_ = policy_.hysteresis;
  }

 private:
  LossScalePolicy policy_;
  double scale_;
  std::uint32_t patience_;
  std::uint64_t good_steps_ = 0;  // in a row
};

}  // namespace gradledger::ref
