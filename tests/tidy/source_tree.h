// The files of the source tree, read as lines.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace gradledger::testing {

struct SourceFile {
  std::string path;  // from the root, "sim/base/result.h"
  std::vector<std::string> lines;

  bool in(const std::string& folder) const { return path.starts_with(folder + "/"); }
  bool is_cpp() const { return path.ends_with(".cpp") || path.ends_with(".h") || path.ends_with(".hpp") || path.ends_with(".cu") || path.ends_with(".cuh"); }
};

inline const std::vector<SourceFile>& source_tree() {
  static const std::vector<SourceFile> files = [] {
    namespace fs = std::filesystem;
    std::vector<SourceFile> out;
    const fs::path root = GRADLEDGER_SOURCE_DIR;
    for (const char* folder :
         {"sim", "ref", "search", "drivers/sessions", "drivers/cpp", "gpu", "conformance", "report", "library", "verbs", "audit", "tools", "tests", "examples", "cmake"})
      for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
        if (!entry.is_regular_file() || entry.path().extension() == ".gz") continue;
        SourceFile file{entry.path().lexically_relative(root).generic_string(), {}};
        std::ifstream stream(entry.path());
        for (std::string line; std::getline(stream, line);) file.lines.push_back(line);
        out.push_back(std::move(file));
      }
    std::sort(out.begin(), out.end(), [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
    return out;
  }();
  return files;
}

}  // namespace gradledger::testing
