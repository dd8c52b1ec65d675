// A number means nothing without its project: pages say DeepSpeed#7981. A bare `#7981` is a value of as_of, and stands in code marks or in quotes.
#include "tests/docs/markdown.h"

namespace gradledger::testing {
namespace {

bool has_bare_reference(const std::string& text) {
  if (text.find('#') == std::string::npos) return false;
  const std::string prose = without(without(text, "`[^`]*`"), "\"[^\"]*\"");
  return std::regex_search(prose, std::regex(R"((^|[^\w&/\]])#\d{3,}\b)"));
}

std::vector<std::string> bare_references(const std::filesystem::path& file) {
  std::vector<std::string> out;
  for (const Section& section : read_document(file).sections) {
    std::istringstream lines(section.heading + "\n" + section.text);
    for (std::string line; std::getline(lines, line);)
      if (has_bare_reference(line)) out.push_back(line);
  }
  return out;
}

TEST(references, name_their_project) {
  std::vector<std::filesystem::path> files = all_documents();
  files.push_back(source_folder / "tests/conformance/data/README.md");
  for (const std::filesystem::path& file : files)
    for (const std::string& line : bare_references(file)) ADD_FAILURE() << file << " has a number without its project: " << line;
}

TEST(references, without_their_project_are_found) {
  for (const char* bare : {"before #7839 a step", "#7981 repairs it", "| #7981 | 0.19.0 |", "since (#8035)", "`x` of #7665"}) EXPECT_TRUE(has_bare_reference(bare)) << bare;
  for (const char* right : {"before DeepSpeed#7839 a step", "`#7981`, right after it", "set to \"before #7981\"", "page.md#123", "issue #1"})
    EXPECT_FALSE(has_bare_reference(right)) << right;
}

}  // namespace
}  // namespace gradledger::testing
