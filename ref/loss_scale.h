// The loss scale by its documentation, step by step. Written from the meaning of the configuration's keys.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/scenario/contract.h"
#include "sim/scenario/timeline.h"

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

// In force for each window of a script, where overflows are those that it plants.
inline std::vector<double> loss_scales(const Timeline& timeline) {
  std::vector<bool> overflows(timeline.steps, false);
  for (const Plant& plant : timeline.planted)
    if (timeline.backwards[plant.backward].step < timeline.steps) overflows[timeline.backwards[plant.backward].step] = true;
  LossScaleModel model(timeline.contract.loss_scale);
  std::vector<double> out;
  for (std::uint32_t window = 0; window < timeline.steps; ++window) {
    out.push_back(model.scale());
    model.step(overflows[window]);
  }
  return out;
}

// Whether the sum of a window may hide what an earlier one left, divided by the scale once more than it should be.
inline bool hides_earlier_windows(const Timeline& timeline) { return timeline.contract.loss_scale.initial > 1 && timeline.steps > 1; }

}  // namespace gradledger::ref
