// The files that a reader expects in the root are there, say what they must, and can be reached from the README.
#include <algorithm>

#include "tests/docs/markdown.h"

namespace gradledger::testing {
namespace {

// The version that project() states.
std::string project_version() {
  std::smatch found;
  const std::string text = text_of(source_folder / "CMakeLists.txt");
  EXPECT_TRUE(std::regex_search(text, found, std::regex(R"(project\(gradledger VERSION ([0-9.]+))")));
  return found[1];
}

TEST(house, every_document_is_reached_from_the_readme) {
  const std::vector<std::string> links = read_document(source_folder / "README.md").links;
  std::vector<std::filesystem::path> reached{source_folder / "README.md"};
  for (std::size_t i = 0; i < reached.size(); ++i)
    for (const std::string& link : read_document(reached[i]).links) {
      const std::filesystem::path target = (reached[i].parent_path() / link.substr(0, link.find('#'))).lexically_normal();
      if (target.extension() == ".md" && std::find(reached.begin(), reached.end(), target) == reached.end()) reached.push_back(target);
    }
  for (const std::filesystem::path& document : all_documents()) EXPECT_NE(std::find(reached.begin(), reached.end(), document), reached.end()) << document;
  EXPECT_NE(std::find(links.begin(), links.end(), "LICENSE"), links.end());
}

TEST(house, index_of_the_documents_has_every_page) {
  const std::filesystem::path folder = source_folder / "docs";
  const std::vector<std::string> links = read_document(folder / "README.md").links;
  for (const char* part : {".", "engines"})
    for (const auto& entry : std::filesystem::directory_iterator(folder / part)) {
      const std::string page = std::filesystem::relative(entry.path(), folder).string();
      if (entry.path().extension() == ".md" && page != "README.md") {
        EXPECT_NE(std::find(links.begin(), links.end(), page), links.end()) << page;
      }
    }
}

TEST(house, licence_is_the_whole_apache_licence) {
  const std::string text = text_of(source_folder / "LICENSE");
  for (const char* part : {"Apache License\n                           Version 2.0, January 2004", "9. Accepting Warranty or Additional Liability", "END OF TERMS AND CONDITIONS",
                           "APPENDIX: How to apply"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
}

TEST(house, changelog_has_the_version_of_the_project_and_what_is_not_released) {
  const Document changelog = read_document(source_folder / "CHANGELOG.md");
  EXPECT_TRUE(changelog.section("Unreleased"));
  const auto dated = [&](const Section& s) {
    return std::regex_match(s.heading, std::regex(std::regex_replace(project_version(), std::regex("\\."), "\\.") + R"( - \d{4}-\d{2}-\d{2})"));
  };
  EXPECT_TRUE(std::any_of(changelog.sections.begin(), changelog.sections.end(), dated)) << project_version();
}

// Its lists send people to files: all of them are there.
TEST(house, contributors_are_sent_to_files_that_exist) {
  const std::string text = text_of(source_folder / "CONTRIBUTING.md");
  const std::regex named(R"(`((?:cmake|docs|ref|scenarios|search|sim|tests|tools)/[\w./-]+)`)");
  std::size_t files = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), named), end; at != end; ++at, ++files) {
    const std::string path = (*at)[1];
    EXPECT_TRUE(std::filesystem::exists(source_folder / path)) << path;
  }
  EXPECT_GT(files, 40u);
  for (const char* thing : {"a scenario", "a known defect", "a release", "an engine", "an event", "a class of findings", "a framework"})
    EXPECT_TRUE(read_document(source_folder / "CONTRIBUTING.md").section(std::string("To add ") + thing)) << thing;
}

TEST(house, editor_settings_are_those_of_the_tree) {
  const std::string text = text_of(source_folder / ".editorconfig");
  for (const char* setting : {"root = true", "indent_style = space", "indent_size = 2", "end_of_line = lf", "insert_final_newline = true"})
    EXPECT_NE(text.find(setting), std::string::npos) << setting;
}

}  // namespace
}  // namespace gradledger::testing
