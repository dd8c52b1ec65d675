// Weights that sums do not show beside larger ones, and runs of one contribution each do.
#include <algorithm>
#include <cmath>

#include "ref/loss_scale.h"
#include "ref/taking_apart.h"

namespace gradledger::ref {

void TakingApart::look_for_hidden() {
  const std::vector<double> scales = loss_scales(timeline_);
  std::vector<double> shares{entry_.step < scales.size() ? 1 / scales[entry_.step] : 1};
  if (patterns_)
    for (const WeightPattern& pattern : *patterns_) shares.push_back(pattern.least_share);
  for (std::uint32_t e = 0; e < numel_ && !hides_; ++e) {
    if (became_[e] < 0) continue;
    const RowWeights& answer = answers_[static_cast<std::size_t>(became_[e])];
    if (answer.any_open()) continue;
    hides_ = hides_earlier(answer, e) || std::any_of(shares.begin(), shares.end(), [&](double share) { return hides(answer, e, share); });
  }
}

// Whether odd weights may as well be simple ones and what a loop's scaler left of earlier windows.
bool TakingApart::hides_earlier(const RowWeights& answer, std::uint32_t element) const {
  RowWeights other{std::vector<double>(entry_.columns.size()), std::vector<bool>(entry_.columns.size(), false), {}, {}};
  double simple = 1;
  bool odd = false, left = false;
  for (std::size_t k = 0; k < entry_.columns.size(); ++k) {
    const double due = expected_[piece_of_[element]][k], held = answer.of_due ? *answer.of_due * due : answer.value[k];
    if (due == 0 || held / due <= 0) continue;
    simple = std::exp2(std::nearbyint(std::log2(held / due)));
    other.value[k] = simple * due;
    odd = odd || other.value[k] != held;
  }
  for (std::size_t k = 0; k < entry_.columns.size(); ++k) {
    if (windows_between(entry_, entry_.columns[k]) == 0) continue;
    other.value[k] = simple * entry_.columns[k].averaged * solver_.left(k);
    left = left || solver_.left(k) != 1;
  }
  return odd && left && fits(other, element);
}

// A gradient that no loss scale multiplied, beside some that are: 16 bits have little room for it, and earlier windows may seem to explain what is left of it.
bool TakingApart::hides(const RowWeights& answer, std::uint32_t element, double share) const {
  if (answer.of_due || share == 1) return false;
  RowWeights other = answer;
  bool any = false;
  for (std::size_t k = 0; k < entry_.columns.size(); ++k) {
    const double due = expected_[piece_of_[element]][k];
    if (answer.value[k] != 0 || due == 0 || windows_between(entry_, entry_.columns[k]) > 0) continue;
    other.value[k] = due * share;
    any = true;
  }
  if (!any) return false;
  if (fits(other, element)) return true;
  for (std::size_t k = 0; k < entry_.columns.size(); ++k)
    if (windows_between(entry_, entry_.columns[k]) > 0) other.value[k] = 0;
  return fits(other, element);
}

}  // namespace gradledger::ref
