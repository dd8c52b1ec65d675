#include "tools/gradledger/numbers.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/scenario/spelling.h"

namespace gradledger::tool {

std::string whole_number(const std::string& digits) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool octal = digits.size() > 1 && digits.front() == '0';
  if (error == std::errc{} && end == digits.data() + digits.size() && !octal) return "";
  return fmt::format("\"{}\" is no number here; expected a whole one from 0 to {}", digits, std::numeric_limits<std::uint64_t>::max());
}

std::string size_in_bytes(std::string& text) { return whole_number(text.substr(0, text.find_first_not_of("-0123456789"))); }

std::string some_text(const std::string& text) { return text.empty() ? "is empty; expected a value" : ""; }

OneOf::OneOf(const std::vector<std::string>& names) : CLI::IsMember(names) {
  func_ = [names](std::string& text) -> std::string {
    if (std::find(names.begin(), names.end(), text) != names.end()) return "";
    return fmt::format("is \"{}\"; expected one of {}{}", text, fmt::join(names, ", "), suggestion(text, names));
  };
}

Result<std::pair<std::uint32_t, std::uint32_t>> shard_from(const std::string& text) {
  std::uint32_t shard = 0, shards = 0;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, shard);
  if (first.ec == std::errc{} && first.ptr != end && *first.ptr == '/') {
    const auto second = std::from_chars(first.ptr + 1, end, shards);
    if (second.ec == std::errc{} && second.ptr == end && shard < shards && shards <= shards_max) return std::pair{shard, shards};
  }
  return InputError{"--shard", "\"" + text + "\" is no shard; expected i/n with i from 0 to n - 1, or auto"};
}

}  // namespace gradledger::tool
