#include "ref/overflow.h"

namespace gradledger::ref {

bool promises_overflow_check(const Scenario& scenario) {
  const DeepSpeedConfig& config = scenario.engine.config;
  if (config.fp16.enabled) return true;
  if (!config.bf16.enabled) return false;
  return config.bf16.check_grad_overflow.value_or(config.zero.stage == 1 || config.zero.stage == 2);
}

std::vector<bool> planted_windows(const Timeline& timeline) {
  std::vector<bool> out(timeline.steps + 1, false);
  for (const Plant& plant : timeline.planted)
    if (timeline.dropped_at[plant.backward][plant.rank] == never) out[timeline.backwards[plant.backward].step] = true;
  return out;
}

std::vector<bool> windows_to_skip(const Scenario& scenario, const Timeline& timeline) {
  if (!promises_overflow_check(scenario)) return std::vector<bool>(timeline.steps + 1, false);
  return planted_windows(timeline);
}

}  // namespace gradledger::ref
