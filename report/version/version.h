// Which gradledger this is: what --version prints, and the object "tool" of every JSON report.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace gradledger::report {

struct Version {
  std::string_view number;      // of project()
  std::string_view commit;      // with "-dirty" where files were changed; "unknown" outside of a repository
  std::string_view compiler;    // "GNU 12.2.0"
  std::string_view build_type;  // "Release"; with the sanitizers, where there are any
};

const Version& version();

// "gradledger 0.1.0 (commit ..., GNU 12.2.0, Release)"
std::string version_text();

nlohmann::ordered_json tool_json(const Version& tool = version());

}  // namespace gradledger::report
