// Links lead somewhere, and files that the documents name are there.
#include <map>
#include <set>

#include "tests/docs/markdown.h"

namespace gradledger::testing {
namespace {

namespace fs = std::filesystem;

TEST(links, lead_to_files_and_headings_that_exist) {
  std::size_t looked_at = 0, anchors = 0;
  std::map<fs::path, std::vector<std::string>> anchors_of;
  for (const fs::path& file : all_documents()) anchors_of[file] = read_document(file).anchors;
  for (const fs::path& file : all_documents()) {
    for (const std::string& link : read_document(file).links) {
      if (link.find("://") != std::string::npos) continue;
      ++looked_at;
      const std::size_t hash = link.find('#');
      const std::string path = link.substr(0, hash);
      const fs::path target = path.empty() ? file : file.parent_path() / path;
      EXPECT_TRUE(fs::exists(target)) << file << " links to " << link;
      if (hash == std::string::npos || !fs::is_regular_file(target)) continue;
      ++anchors;
      const auto known = anchors_of.find(target.lexically_normal());
      const std::vector<std::string> there = known != anchors_of.end() ? known->second : read_document(target).anchors;
      EXPECT_NE(std::find(there.begin(), there.end(), link.substr(hash + 1)), there.end()) << file << " links to " << link;
    }
  }
  EXPECT_GT(looked_at, 20u);
  EXPECT_GT(anchors, 10u);
}

TEST(links, scenarios_and_tools_that_are_named_exist) {
  const std::regex named(R"((^|[\s`(])((?:scenarios|tools|tests)/[\w./-]*\w))");
  std::set<std::string> paths;
  for (const fs::path& file : all_documents()) {
    const std::string text = text_of(file);
    for (std::sregex_iterator at(text.begin(), text.end(), named), end; at != end; ++at) {
      const std::string path = (*at)[2];
      paths.insert(path);
      EXPECT_TRUE(fs::exists(source_folder / path)) << file << " names " << path;
    }
  }
  EXPECT_GT(paths.size(), 3u);
}

}  // namespace
}  // namespace gradledger::testing
