// The scenarios that failed in the last gate with --last-failed, in a file between two runs.
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "report/corpus.h"
#include "sim/base/result.h"

namespace gradledger::tool {

class LastFailed {
 public:
  // None where there is no such file. Errors: it is no such file.
  static Result<LastFailed> read(const std::filesystem::path& file);

  bool empty() const { return failed_.empty(); }
  bool contains(const std::filesystem::path& scenario) const { return failed_.contains(key(scenario)); }

  // What the gate ran is as it says; of the others nothing is new.
  void learn(const report::GateReport& gate);
  // Errors: it cannot be written.
  Result<bool> write(const std::filesystem::path& file) const;

 private:
  static std::string key(const std::filesystem::path& scenario);  // from the working directory, so that checkouts may move

  std::set<std::string> failed_;
};

}  // namespace gradledger::tool
