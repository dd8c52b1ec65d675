// Where a script repeats itself within a window: rounds of backwards and of calls of step() that do not update, on all ranks alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/scenario/scenario.h"
#include "sim/scenario/timeline.h"

namespace gradledger {

// Events [begin, begin + rounds x events), with `backwards` in each round, the first of which has this number.
struct ScriptRounds {
  std::uint32_t begin = 0, events = 0, backwards = 0, rounds = 0, first_backward = 0;
  bool ends_with_step = false;

  std::uint32_t end_of(std::uint32_t round) const { return begin + (round + 1) * events; }
  std::uint32_t backward_of(std::uint32_t round) const { return first_backward + round * backwards; }
};

// What an engine is told of an event, but for the number of its backward, is the same in all plain ones of a kind.
inline bool is_plain(const Timeline& timeline, const Event& event) {
  if (!event.ranks.empty() || event.nobody) return false;
  if (const auto* step = event.as<events::Step>()) return !step->updates && !step->closes && !step->at_boundary && !step->past_scaler;
  const auto* backward = event.as<events::Backward>();
  if (!backward || !backward->own_forward || !backward->scale_wrt_gas || backward->phases != 1 || backward->summed != 1 || backward->raises_after || backward->past_scaler ||
      backward->direct)
    return false;
  const Backward& b = timeline.backwards[backward->ordinal];
  return b.uses.empty() && b.order.empty() && b.loss_factor.empty() && !b.raises_after;
}

// Longest first from the start of the script on, of at least so many rounds.
inline std::vector<ScriptRounds> rounds_of(const Scenario& scenario, const Timeline& timeline, std::uint32_t rounds_min) {
  constexpr std::uint32_t events_max = 8;
  std::vector<ScriptRounds> out;
  if (!timeline.planted.empty() || std::any_of(scenario.parameters.begin(), scenario.parameters.end(), [](const Parameter& p) { return p.used_by.has_value(); })) return out;
  const auto size = static_cast<std::uint32_t>(timeline.events.size());
  const auto belongs = [&](std::uint32_t first, std::uint32_t e) {
    const Event &a = timeline.events[first], &b = timeline.events[e];
    return a.step == b.step && a.documented == b.documented && is_plain(timeline, b);
  };
  for (std::uint32_t begin = 0; begin < size;) {
    std::uint32_t end = begin;
    while (end < size && belongs(begin, end)) ++end;
    ScriptRounds best;
    for (std::uint32_t length = 1; length <= events_max && best.rounds == 0; ++length) {
      std::uint32_t same = begin + length;
      while (same < end && timeline.events[same].kind() == timeline.events[same - length].kind()) ++same;
      if (same > end || (same - begin) / length < rounds_min) continue;
      best = {.begin = begin, .events = length, .rounds = (same - begin) / length};
    }
    for (std::uint32_t e = begin; e < begin + best.events; ++e)
      if (const auto* backward = timeline.events[e].as<events::Backward>(); backward && best.backwards++ == 0) best.first_backward = backward->ordinal;
    best.ends_with_step = best.events > 0 && timeline.events[begin + best.events - 1].is<events::Step>();
    if (best.backwards > 0) out.push_back(best);
    begin = std::max(best.rounds > 0 ? best.end_of(best.rounds - 1) : end, begin + 1);
  }
  return out;
}

}  // namespace gradledger
