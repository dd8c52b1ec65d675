#include "ref/overflow.h"

namespace gradledger::ref {

std::vector<bool> planted_windows(const Timeline& timeline) {
  std::vector<bool> out(timeline.steps + 1, false);
  for (const Plant& plant : timeline.planted)
    if (timeline.dropped_at[plant.backward][plant.rank] == never) out[timeline.backwards[plant.backward].step] = true;
  return out;
}

std::vector<bool> windows_to_skip(const Timeline& timeline) {
  if (!timeline.contract.skips_nonfinite) return std::vector<bool>(timeline.steps + 1, false);
  return planted_windows(timeline);
}

}  // namespace gradledger::ref
