// The defects that a corpus can cover. A scenario names its entries with the key "covers"; `gradledger coverage` holds a corpus against the
// table. Those of a framework are in its folder, those of loops around any framework here.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "sim/base/result.h"

namespace gradledger {

enum class Evidence : std::uint8_t {
  recorded,  // a run of the framework showed it
  read,      // follows from the framework's source; no run is known to have shown it
};

struct Entry {
  std::string_view id;    // "catalogue-7", "live-5b", "zoo-12"
  std::string_view name;  // a few words for people to say, "expert-weights-in-the-norm"; printed beside the id
  std::string_view title;
  std::string_view origin;  // changes and issues; "" where there is none
  Evidence evidence;
  std::array<std::string_view, 3> classes;  // of findings, all of which its scenarios report; none: right gradients, nothing may be reported
  std::string_view not_covered;             // why no scenario shows it; "" where one does
};

std::span<const Entry> loop_defects();

// "offload-loss, stale-gradient", or "clean".
std::string classes_text(const Entry& entry);

// Errors name the nearest id, if one is near.
Result<const Entry*> entry_named(std::string_view id, std::string_view where, std::initializer_list<std::span<const Entry>> among);

}  // namespace gradledger
