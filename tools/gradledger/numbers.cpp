#include "tools/gradledger/numbers.h"

#include <charconv>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

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

}  // namespace gradledger::tool
