// The command, run as its users run it.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace gradledger::testing {

struct Ran {
  int code = -1;
  std::string output;  // standard output
};

inline Ran run_command(const std::vector<std::string>& arguments) {
  std::string line = "'" GRADLEDGER_COMMAND "'";
  for (const std::string& argument : arguments) line += " '" + argument + "'";
  Ran out;
  FILE* pipe = popen(line.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  if (!pipe) return out;
  char buffer[4096];
  while (const std::size_t n = fread(buffer, 1, sizeof buffer, pipe)) out.output.append(buffer, n);
  const int status = pclose(pipe);
  out.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return out;
}

// One row for each line of "gradledger list", cells in the order of the columns.
inline std::vector<std::vector<std::string>> listed(const std::string& what) {
  const Ran ran = run_command({"list", what, "--json"});
  EXPECT_EQ(ran.code, 0) << what;
  std::vector<std::vector<std::string>> out;
  const auto table = nlohmann::ordered_json::parse(ran.output.substr(0, ran.output.find('\n')));  // a summary follows
  for (const auto& row : table["rows"]) {
    out.emplace_back();
    for (const auto& [column, cell] : row.items()) out.back().push_back(cell);
  }
  EXPECT_FALSE(out.empty()) << what;
  return out;
}

}  // namespace gradledger::testing
