// PyTorch's releases, as far as the code of its wrappers was compared from one to the next: audited.json beside this file says how.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sim/base/result.h"
#include "sim/scenario/scenario.h"

namespace gradledger::torch {

// A minor release and its patches, whose wrappers behave alike.
struct ReleaseLine {
  std::string_view first, last;
};

// Oldest first; the last one is head.
std::span<const ReleaseLine> release_lines();

// The place in release_lines() of "2.6.0", "2.6" or "head". What lies behind them is taken as the newest. Errors: older ones, and what is no release.
Result<std::uint32_t> line_of_release(std::string_view as_of, std::string_view where);

// What is to be said of a release that was not compared, and taken as one that was; nothing of every other text.
std::optional<std::string> release_note(std::string_view as_of);

// What is installed, "2.6.0+cu124" as "2.6.0"; head where it is older than what was compared.
AsOf installed_release(const std::map<std::string, std::string>& releases);

}  // namespace gradledger::torch
