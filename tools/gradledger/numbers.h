// What the option parser lets pass for a value and is none.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "sim/base/result.h"

namespace gradledger::tool {

// Checks of an option's text: empty where it is right, else what is wrong. The parser takes "-1", "" and 1e30 for numbers of 64 bits, and
// "010" for 8.
std::string whole_number(const std::string& digits);
std::string size_in_bytes(std::string& text);
std::string some_text(const std::string& text);

// A value that is one of some names; of another one it says which was probably meant.
class OneOf : public CLI::IsMember {
 public:
  explicit OneOf(const std::vector<std::string>& names);
};

// Shards of one run. Each has a report, and all of them are joined at once.
inline constexpr std::uint32_t shards_max = 1u << 20;

// "i/n" of --shard: the one with number i of n. Errors: it is none.
Result<std::pair<std::uint32_t, std::uint32_t>> shard_from(const std::string& text);

}  // namespace gradledger::tool
