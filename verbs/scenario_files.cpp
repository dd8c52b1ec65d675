#include "verbs/scenario_files.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string_view>

#include "sim/base/files.h"

namespace gradledger::verbs {

namespace fs = std::filesystem;
namespace {

bool ends_like_a_scenario(const std::string& name) {
  return name.ends_with(".json") && !name.ends_with(".schema.json") && !name.ends_with(".gradients.json") && !name.ends_with(".tokens.json");
}

bool differs_in_case_alone(std::string name) {
  if (name.ends_with(".json")) return false;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name.ends_with(".json");
}

// Searches folders by hand: one that cannot be read must not end the search of the others.
class Search {
 public:
  void file(const fs::path& path) { files_.insert(path.lexically_normal()); }

  void folder(const fs::path& path) {
    std::error_code failed;
    for (fs::directory_iterator at(path, failed); !failed && at != fs::directory_iterator(); at.increment(failed)) entry(*at);
    if (failed) leave_out(path, "cannot be searched: " + failed.message(), true);
  }

  ScenarioFiles take() {
    ScenarioFiles out{{files_.begin(), files_.end()}, {}};
    for (const auto& [path, left_out] : left_out_) out.left_out.push_back(left_out);
    return out;
  }

 private:
  void entry(const fs::directory_entry& entry) {
    std::error_code failed;  // a link in circles is no file
    const fs::file_status own = entry.symlink_status(failed), there = entry.status(failed);
    const bool link = fs::is_symlink(own), scenario = ends_like_a_scenario(entry.path().filename().string());
    if (fs::is_directory(there)) {
      if (link) leave_out(entry.path(), "is a link to a folder");
      else folder(entry.path());
    } else if (differs_in_case_alone(entry.path().filename().string())) {
      leave_out(entry.path(), "does not end in .json");
    } else if (scenario && fs::is_regular_file(there)) {
      file(entry.path());
    } else if (scenario && !fs::exists(there)) {
      leave_out(entry.path(), link ? "is a link that leads nowhere" : "cannot be looked at");
    } else if (scenario) {
      leave_out(entry.path(), "is a device, a pipe or a socket");
    }
  }

  void leave_out(const fs::path& path, std::string why, bool unreadable = false) {
    const fs::path normal = path.lexically_normal();
    left_out_[normal] = {normal, std::move(why), unreadable};
  }

  std::set<fs::path> files_;
  std::map<fs::path, LeftOut> left_out_;
};

}  // namespace

Result<ScenarioFiles> search_for_scenarios(const std::vector<std::string>& paths) {
  Search search;
  for (const std::string& path : paths) {
    std::error_code failed;
    if (is_standard_input(path)) {
      search.file(path);
      continue;
    }
    if (!fs::exists(path, failed)) return InputError{path, "does not exist; expected a scenario file or a folder"};
    if (fs::is_directory(path, failed)) search.folder(path);
    else search.file(path);
  }
  return search.take();
}

Result<ScenarioFiles> some_scenarios(const std::vector<std::string>& paths) {
  auto found = search_for_scenarios(paths);
  if (!found || !found->files.empty()) return found;
  const std::vector<LeftOut>& left_out = found->left_out;
  return InputError{paths.front(), left_out.empty() ? "holds no scenario; a gate over nothing does not pass"
                                                    : "holds no scenario that could be taken: " + left_out.front().path.string() + " " + left_out.front().why};
}

Result<std::vector<fs::path>> scenario_files(const std::vector<std::string>& paths) {
  auto found = some_scenarios(paths);
  if (!found) return found.error();
  for (const LeftOut& left_out : found->left_out)
    if (left_out.unreadable) return InputError{left_out.path.string(), left_out.why};
  return found->files;
}

}  // namespace gradledger::verbs
