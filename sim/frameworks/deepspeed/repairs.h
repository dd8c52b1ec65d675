// What repairs the defects of the catalogue, and how to avoid them: switches of the engines with the value that is wrong and the one that is
// right. Since when and until when is not written down here; it follows from the history of the switch.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace gradledger {

// One way in which an entry shows. The first that fits a finding names it.
struct Repair {
  std::string_view entry;    // of the catalogue
  std::string_view name;     // of the switch
  std::string_view wrong;    // value that has the defect; "": any but the right one
  std::string_view right;
  std::string_view avoid{};  // what a user of such a release can do; "" where nothing is known that a run has shown
  std::uint32_t stage_min = 0, stage_max = 3;
};

std::span<const Repair> repairs();

}  // namespace gradledger
