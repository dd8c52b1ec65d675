// The folder that a campaign keeps its findings in. Whatever ends the process, its files are whole; two campaigns may share it.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sim/base/result.h"
#include "sim/scenario/scenario.h"

namespace gradledger::tool {

class FindingsFolder {
 public:
  explicit FindingsFolder(std::filesystem::path path) : path_(std::move(path)) {}

  const std::filesystem::path& path() const { return path_; }

  // What stands in the way of writing into it, found out before anything is searched and without making it.
  std::optional<InputError> refusal() const;

  // Its scenarios, without those that tell two sides apart; none where there is no folder.
  std::vector<std::filesystem::path> scenarios();

  struct Kept {
    std::filesystem::path path;
    bool was_there = false;  // by another campaign
  };
  using Same = std::function<bool(const Scenario&)>;
  // Writes a scenario as the file of its name, with a number where that is taken. Where a file that came since scenarios(), or that has the
  // name, is the same, that one stands for it. Errors: it cannot be written.
  Result<Kept> keep(Scenario scenario, const Same& same);

 private:
  std::filesystem::path path_;
  std::set<std::filesystem::path> seen_;
};

}  // namespace gradledger::tool
