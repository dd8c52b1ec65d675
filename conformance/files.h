// Files of recordings: a JSON document a line, plain or gzip.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"

namespace gradledger::conform {

// What the document of a line may take in memory. A recording that is as long as it may be takes less.
inline constexpr std::uint64_t document_bytes_max = 320ull << 20;
// Lines that cannot be read, after which the rest of a file is not looked at.
inline constexpr std::uint64_t unreadable_lines_max = 100;

// Takes a line with its place ("FILE:3"); what it returns ends the file.
using LineUse = std::function<std::optional<InputError>(const std::string& line, const std::string& where)>;

// Hands every line that is not blank to `use`. Errors: of LineReader, no line at all, and the first that `use` returns.
std::optional<InputError> for_each_line(const std::string& path, const LineUse& use);

// Likewise the document of each line. One that `use` cannot do with, or that is no JSON, goes to `complain` with its place, and the next one
// follows. Errors: those of the file, bytes that no text has, and too many lines of that kind.
using DocumentUse = std::function<std::optional<InputError>(const nlohmann::json& document)>;
using Complaint = std::function<void(const InputError& error)>;
std::optional<InputError> for_each_document(const std::string& path, const DocumentUse& use, const Complaint& complain);

// As gzip that depends on the lines alone: no time, no name. Errors: cannot be written.
std::optional<InputError> write_gzip_lines(const std::string& path, const std::vector<std::string>& lines);

}  // namespace gradledger::conform
