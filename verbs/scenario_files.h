// Which files a verb over a corpus takes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "sim/base/result.h"

namespace gradledger::verbs {

// Files as given, each once; folders searched for *.json, leaving out schemas and gradient tables. In the order of their paths, never none.
Result<std::vector<std::filesystem::path>> scenario_files(const std::vector<std::string>& paths);

}  // namespace gradledger::verbs
