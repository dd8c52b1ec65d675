// Files of JSON lines, plain or gzip.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/result.h"

namespace gradledger::conform {

// Hands every line that is not blank to `use`, with its place ("FILE:3") for errors. Errors: not a file, not gzip to its end, a line
// longer than limits::file_bytes_max, no line at all; and the first that `use` returns.
using LineUse = std::function<std::optional<InputError>(const std::string& line, const std::string& where)>;
std::optional<InputError> for_each_line(const std::string& path, const LineUse& use);

// As gzip that depends on the lines alone: no time, no name. Errors: cannot be written.
std::optional<InputError> write_gzip_lines(const std::string& path, const std::vector<std::string>& lines);

}  // namespace gradledger::conform
