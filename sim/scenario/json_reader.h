// Text to JSON, with the checks that come before any schema: size, depth, memory, duplicate keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "sim/base/error_list.h"
#include "sim/base/limits.h"
#include "sim/base/result.h"

namespace gradledger {

namespace limits {
inline constexpr std::uint64_t json_bytes_max = 512ull << 20;  // that a document may take once it is read
}

// Errors carry a JSON pointer where the input is JSON, or line and column where it is not. A document that would take more than so much memory
// is one: two bytes of text can stand for an object of a hundred.
Result<nlohmann::json> read_json(std::string_view text, std::uint64_t document_bytes_max = limits::json_bytes_max);
// Likewise, but keys that appear twice are told there and end nothing: of their values the last one is taken.
Result<nlohmann::json> read_json(std::string_view text, ErrorList& repeated, std::uint64_t document_bytes_max = limits::json_bytes_max);

// A number, or a fraction such as "3/8": digits, a slash, digits that are not all 0. None where a text is neither.
std::optional<double> fraction(const nlohmann::json& value);

// `key` as a token of a JSON pointer: "~" and "/" escaped.
std::string pointer_token(std::string_view key);

}  // namespace gradledger
