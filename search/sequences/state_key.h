// What tells two states between events apart: every rank's engine and accumulators, and what the user's contract makes of the sequence.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>

#include "sim/execution/rank.h"
#include "sim/scenario/timeline.h"

namespace gradledger::search {

// 128 bits, so that states that differ are not taken for one.
struct StateKey {
  std::array<std::uint64_t, 2> words{};
  auto operator<=>(const StateKey&) const = default;
};

// Probes that repeat with this period of windows let a state meet itself in a later one.
inline constexpr std::uint32_t window_period = 3;

// use: what else decides which events may follow.
StateKey state_key(const Scenario& scenario, const Timeline& timeline, std::span<const Rank> ranks, std::uint32_t open_blocks, std::uint64_t use = 0);

}  // namespace gradledger::search
