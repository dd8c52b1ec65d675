// "-" among the files of a verb.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/result.h"

namespace gradledger::tool {

// Reads standard input where one of the files is "-", which from then on has the name that stands for it. Errors: of take_standard_input(), "-" more
// than once, a file of that very name beside it.
std::optional<InputError> take_standard_input(const std::vector<std::string*>& files, std::uint64_t bytes_max);

}  // namespace gradledger::tool
