// Which files a verb over a corpus takes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "sim/base/result.h"

namespace gradledger::verbs {

// Something in a folder that may be meant to be a scenario, and was not taken for one.
struct LeftOut {
  std::filesystem::path path;
  std::string why;          // "is a link that leads nowhere"
  bool unreadable = false;  // a folder of which nobody knows what it holds
};

struct ScenarioFiles {
  std::vector<std::filesystem::path> files;  // each once, in the order of their paths
  std::vector<LeftOut> left_out;             // likewise
};

// Files as given; folders searched for *.json, without schemas and tables of gradients and tokens. Links to files are followed, those to
// folders are left out. Errors: a path that is not there.
Result<ScenarioFiles> search_for_scenarios(const std::vector<std::string>& paths);

// Likewise; errors also: there is none. The last one has nothing to say of what was left out: errors also a folder that cannot be read.
Result<ScenarioFiles> some_scenarios(const std::vector<std::string>& paths);
Result<std::vector<std::filesystem::path>> scenario_files(const std::vector<std::string>& paths);

}  // namespace gradledger::verbs
