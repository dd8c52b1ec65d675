#include "verbs/scenario_files.h"

#include <set>

namespace gradledger::verbs {

namespace fs = std::filesystem;

Result<std::vector<fs::path>> scenario_files(const std::vector<std::string>& paths) {
  std::set<fs::path> files;
  for (const std::string& path : paths) {
    std::error_code failed;
    if (!fs::exists(path, failed)) return InputError{path, "does not exist; expected a scenario file or a folder"};
    if (!fs::is_directory(path, failed)) {
      files.insert(fs::path(path).lexically_normal());
      continue;
    }
    fs::recursive_directory_iterator at(path, failed);
    for (; !failed && at != fs::recursive_directory_iterator(); at.increment(failed)) {
      const std::string name = at->path().filename().string();
      std::error_code unreadable;  // a link in circles is no file
      if (at->is_regular_file(unreadable) && name.ends_with(".json") && !name.ends_with(".schema.json") && !name.ends_with(".gradients.json") && !name.ends_with(".tokens.json"))
        files.insert(at->path().lexically_normal());
    }
    if (failed) return InputError{path, "cannot be searched: " + failed.message()};
  }
  if (files.empty()) return InputError{paths.front(), "holds no scenario; a gate over nothing does not pass"};
  return std::vector<fs::path>(files.begin(), files.end());
}

}  // namespace gradledger::verbs
