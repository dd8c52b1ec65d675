// Where the libraries lie that come with PyTorch: in the packages of a Python.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

namespace gradledger::gpu {

// Folders of packages: those of PYTHONPATH, then site-packages and dist-packages of each Python below VIRTUAL_ENV, CONDA_PREFIX, the
// system's prefixes and the user's own (HOME), in the order of their names. What these variables have of relative paths is left out: libraries
// are not loaded from wherever one stands.
inline std::vector<std::filesystem::path> package_folders() {
  namespace fs = std::filesystem;
  std::vector<fs::path> out, prefixes;
  if (const char* paths = std::getenv("PYTHONPATH"))
    for (std::string_view rest = paths; !rest.empty();) {
      const std::size_t colon = std::min(rest.find(':'), rest.size());
      if (colon > 0) out.emplace_back(rest.substr(0, colon));
      rest.remove_prefix(std::min(colon + 1, rest.size()));
    }
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* prefix = std::getenv(variable)) prefixes.emplace_back(prefix);
  prefixes.insert(prefixes.end(), {"/usr/local", "/usr", "/opt/conda", "/opt/venv"});
  if (const char* home = std::getenv("HOME")) prefixes.push_back(fs::path(home) / ".local");
  std::erase_if(out, [](const fs::path& folder) { return folder.is_relative(); });
  std::erase_if(prefixes, [](const fs::path& prefix) { return prefix.is_relative(); });
  for (const fs::path& prefix : prefixes) {
    std::vector<fs::path> pythons;
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(prefix / "lib", ignored))
      if (entry.path().filename().string().starts_with("python3")) pythons.push_back(entry.path());
    std::sort(pythons.begin(), pythons.end());
    for (const fs::path& python : pythons)
      for (const char* packages : {"site-packages", "dist-packages"}) out.push_back(python / packages);
  }
  return out;
}

}  // namespace gradledger::gpu
