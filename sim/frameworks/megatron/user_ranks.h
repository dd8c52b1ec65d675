// Ranks, schedule and windows that a script of Megatron-LM asks for.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "sim/frameworks/user_config.h"

namespace gradledger::megatron {

// Arguments by name, as far as they decide how ranks lie and what they run.
struct AskedFor {
  std::map<std::string, bool> flags;
  std::map<std::string, std::uint64_t> counts;

  bool set(const char* name) const {
    const auto found = flags.find(name);
    return found != flags.end() && found->second;
  }
  // 1 where nobody says.
  std::uint64_t size(const char* name) const {
    const auto found = counts.find(name);
    return found == counts.end() ? 1 : found->second;
  }
};

// Into the configuration, which has all other arguments: ranks, layout and groups, what they hold of the model, the schedule, micro-batches of a window, and
// what of it the answer leaves open.
void take_ranks(const AskedFor& given, const UserConfigHints& hints, UserConfig& out);

}  // namespace gradledger::megatron
