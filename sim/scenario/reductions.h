// Which reductions of backwards a framework's own event switches, by its documentation.
#pragma once

#include <cstdint>

namespace gradledger {

// A reduction in two stages has sums between ranks of a shard in between; a backward is reduced where nothing is held back.
inline constexpr std::uint8_t own_sums = 1, partial_sums = 2;

struct ReductionSwitch {
  std::uint8_t stages = own_sums | partial_sums;
  bool held_back = false;  // from here on

  bool operator==(const ReductionSwitch&) const = default;
};

}  // namespace gradledger
