// docs/library.md and docs/drivers-cpp.md show files of the example, and what it prints while it has its mistake.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "examples/cpp/averaging_judged.h"
#include "gradledger/orderings.h"

namespace library_test {
namespace {

const std::filesystem::path tree = GRADLEDGER_SOURCE_DIR;
const std::filesystem::path example = tree / "examples" / "cpp";

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct Block {
  std::string language, name, text;
};

std::vector<Block> blocks_of(const std::filesystem::path& page) {
  std::vector<Block> out;
  bool inside = false;
  std::istringstream lines(text_of(page));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      inside = !inside;
      if (!inside) continue;
      const std::size_t space = line.find(' ');
      out.push_back({line.substr(3, space - 3), space == line.npos ? "" : line.substr(space + 1), ""});
    } else if (inside) {
      out.back().text += line + "\n";
    }
  }
  return out;
}

// Line by line; "..." stands for any lines.
void expect_shown(const Block& block, const std::string& printed) {
  std::istringstream lines(block.text);
  std::size_t from = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line == "...") continue;
    const std::size_t at = printed.find(line + "\n", from);
    ASSERT_NE(at, printed.npos) << line << "\nis not in\n" << printed;
    from = at;
  }
}

TEST(the_page, shows_the_files_of_the_example) {
  std::vector<std::string> shown;
  for (const char* page : {"docs/library.md", "docs/drivers-cpp.md"})
    for (const Block& block : blocks_of(tree / page)) {
      if (block.name.empty() || !std::filesystem::exists(example / block.name)) continue;
      EXPECT_EQ(block.text, text_of(example / block.name)) << page << ": " << block.name;
      shown.push_back(block.name);
    }
  EXPECT_EQ(shown,
            (std::vector<std::string>{"averaging.h", "averaging_judged.h", "averaging.json", "averaging_test.cpp", "CMakeLists.txt", "the-fix.patch", "averaging_driver.cpp"}));
}

TEST(the_page, shows_what_the_mistake_is_reported_as) {
  const auto scenario = gradledger::Scenario::load(example / "averaging.json");
  const auto averaging = gradledger::ranks<Judged>("averaging", 4);
  std::ostringstream orderings;
  orderings << gradledger::check_orderings(scenario, averaging, {.seed = 1, .cases = 50});
  std::size_t reports = 0;
  for (const Block& block : blocks_of(tree / "docs/library.md")) {
    if (block.language != "text") continue;
    ++reports;
    expect_shown(block, block.name == "orderings" ? orderings.str() : gradledger::run(scenario, averaging).text);
  }
  EXPECT_EQ(reports, 2u);
}

}  // namespace
}  // namespace library_test
