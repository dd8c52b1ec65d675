#include "report/version/version.h"

#include "commit.h"  // made by cmake/Commit.cmake when it has changed

namespace gradledger::report {

const Version& version() {
  static const Version all{GRADLEDGER_VERSION, GRADLEDGER_COMMIT, GRADLEDGER_COMPILER, GRADLEDGER_BUILD_TYPE};
  return all;
}

std::string version_text() {
  const Version& v = version();
  std::string out = "gradledger ";
  out.append(v.number).append(" (commit ").append(v.commit).append(", ").append(v.compiler).append(", ").append(v.build_type).append(")");
  return out;
}

nlohmann::ordered_json tool_json(const Version& v) {
  return {{"name", "gradledger"}, {"version", v.number}, {"commit", v.commit}, {"compiler", v.compiler}, {"build_type", v.build_type}};
}

}  // namespace gradledger::report
