// Text to JSON, with the checks that come before any schema: size, depth, duplicate keys.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"

namespace gradledger {

// Errors carry a JSON pointer where the input is JSON, or line and column where it is not.
Result<nlohmann::json> read_json(std::string_view text);

// Errors: not there, not readable, not a regular file, larger than limits::file_bytes_max.
Result<std::string> read_file(const std::filesystem::path& path);

// A number, or a fraction such as "3/8": digits, a slash, digits that are not all 0. None where a text is neither.
std::optional<double> fraction(const nlohmann::json& value);

// `key` as a token of a JSON pointer: "~" and "/" escaped.
std::string pointer_token(std::string_view key);

}  // namespace gradledger
