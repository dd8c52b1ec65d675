#include "sim/frameworks/use_walk.h"

#include <algorithm>

namespace gradledger {

UseReport UseWalk::run() {
  for (event_ = 0; event_ < timeline_.events.size(); ++event_) {
    const Event& e = timeline_.events[event_];
    follow_blocks(e);
    if (e.is<events::ExitNoSync>()) continue;
    if (e.nobody) continue;
    if (!e.ranks.empty() && e.ranks.size() < world_) broken(0);
    on_event(e);
    for (std::uint32_t r = 0; r < world_; ++r)
      if (e.runs_on(r)) on_rank(e, r);
  }
  out_.state = state();
  return std::move(out_);
}

void UseWalk::follow_blocks(const Event& e) {
  for (std::uint32_t r = 0; r < world_ && !e.nobody; ++r) {
    if (!e.runs_on(r)) continue;
    if (e.is<events::EnterNoSync>()) ++blocks_[r];
    if (e.is<events::ExitNoSync>() && blocks_[r] > 0 && --blocks_[r] == 0) leave_no_sync(r);
    if (e.is<events::Raise>() && std::exchange(blocks_[r], 0) > 0) leave_no_sync(r);
  }
}

void UseWalk::broken(std::size_t rule) {
  const std::uint32_t step = timeline_.events[event_].step;
  if (said_.insert({rule, step}).second) out_.misuses.push_back({&rules_[rule], event_, step});
}

bool UseWalk::weighs_otherwise(const Event& update) const {
  // Other ranks' contributions do not meet in a gradient, whatever a contract says of them.
  const auto averaged = [&](std::uint32_t r, std::uint32_t on) {
    if (!timeline_.contract.groups.contains("dp_cp")) return true;
    const std::vector<std::uint32_t> ranks = timeline_.contract.groups.of("dp_cp", on);
    return std::binary_search(ranks.begin(), ranks.end(), r);
  };
  for (const std::uint32_t b : timeline_.backwards_of(update.step, Layer::meant))
    for (std::uint32_t r = 0; r < world_; ++r)
      for (std::uint32_t on = 0; timeline_.backwards[b].micro_batch[r] != no_contribution && on < world_; ++on)
        if (averaged(r, on) && timeline_.averaged_weight(b, r, on, Layer::documented) != timeline_.averaged_weight(b, r, on, Layer::meant)) return true;
  return false;
}

bool UseWalk::parameters_alike(const Workload& workload, const Event& backward) const {
  const std::uint32_t ordinal = backward.as<events::Backward>()->ordinal;
  for (std::uint32_t p = 0; p < workload.parameters.size(); ++p) {
    std::uint32_t use = 0, run = 0;
    for (std::uint32_t r = 0; r < world_; ++r) {
      run += backward.runs_on(r) && timeline_.contract.holds(r, p);
      use += backward.runs_on(r) && timeline_.in_graph(workload, ordinal, r, p);
    }
    if (use != 0 && use != run) return false;
  }
  return true;
}

bool UseWalk::lost_at(const Event& restore) const {
  for (const std::uint32_t b : timeline_.backwards_of(restore.step, Layer::meant))
    for (std::uint32_t r = 0; timeline_.backwards[b].event < event_ && r < world_; ++r)
      if (timeline_.backwards[b].micro_batch[r] != no_contribution && timeline_.dropped_at[b][r] > event_) return true;
  return false;
}

}  // namespace gradledger
