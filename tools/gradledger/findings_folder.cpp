#include "tools/gradledger/findings_folder.h"

#include <unistd.h>

#include <fmt/format.h>

#include "sim/load.h"
#include "sim/scenario/parse.h"
#include "tools/gradledger/fuzz.h"
#include "verbs/new_file.h"
#include "verbs/scenario_files.h"

namespace gradledger::tool {
namespace fs = std::filesystem;
namespace {

std::vector<fs::path> files_of(const fs::path& folder) {
  std::error_code missing;
  if (!fs::is_directory(folder, missing)) return {};
  auto found = verbs::search_for_scenarios({folder.string()});
  if (!found) return {};
  std::vector<fs::path> out = std::move(found).value().files;
  const fs::path sides = (folder / differ_folder).lexically_normal();
  std::erase_if(out, [&](const fs::path& file) { return file.parent_path() == sides || file.filename().string().starts_with("differ-"); });
  return out;
}

}  // namespace

std::optional<InputError> FindingsFolder::refusal() const {
  std::error_code failed;
  fs::path at = fs::absolute(path_, failed).lexically_normal();
  while (!fs::exists(at, failed) && at.has_relative_path()) at = at.parent_path();
  if (!fs::is_directory(at, failed)) return InputError{"--findings", path_.string() + " is or lies in a file; expected a folder"};
  if (access(at.c_str(), W_OK | X_OK) != 0) return InputError{"--findings", path_.string() + " cannot be written to; expected a folder that can"};
  return std::nullopt;
}

std::vector<fs::path> FindingsFolder::scenarios() {
  std::vector<fs::path> out = files_of(path_);
  seen_ = {out.begin(), out.end()};
  return out;
}

Result<FindingsFolder::Kept> FindingsFolder::keep(Scenario scenario, const Same& same) {
  std::error_code failed;
  fs::create_directories(path_, failed);
  if (failed) return InputError{"--findings", path_.string() + " cannot be made: " + failed.message()};
  const verbs::FolderLock lock(path_);
  const auto is_same = [&](const fs::path& file) {
    const auto there = load_scenario(file);
    return there && same(*there);
  };
  for (const fs::path& file : files_of(path_))
    if (!seen_.contains(file) && is_same(file)) return Kept{file, true};
  const std::string name = scenario.name;
  for (int number = 1;; ++number) {
    if (number > 1) scenario.name = fmt::format("{}-{}", name, number);
    const fs::path file = (path_ / (scenario.name + ".json")).lexically_normal();
    const auto written = verbs::write_new_file(file, serialise(scenario));
    if (!written) return InputError{"--findings", written.error().text()};
    if (*written) {
      seen_.insert(file);
      return Kept{file, false};
    }
    if (is_same(file)) return Kept{file, true};
  }
}

}  // namespace gradledger::tool
