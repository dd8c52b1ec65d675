// Pages show commands with what they print: each is run, and prints it.
//
// GRADLEDGER_UPDATE_PAGES=1 build/release/tests/test_docs --gtest_filter='docs/page_with_commands.*' writes what is printed into the pages.
#include <cstdlib>
#include <fstream>

#include "tests/docs/markdown.h"
#include "tests/docs/page_commands.h"

namespace gradledger::testing {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> pages_with_commands() {
  std::vector<fs::path> out;
  for (const fs::path& page : all_documents())
    if (text_of(page).find("\n```console\n") != std::string::npos) out.push_back(page);
  return out;
}

class page_with_commands : public ::testing::TestWithParam<fs::path> {};

TEST_P(page_with_commands, shows_what_they_print) {
  const PageRun run = run_page(GetParam());
  EXPECT_GT(run.commands, 0u);
  for (const std::string& one : run.differing) ADD_FAILURE() << one;
  if (std::getenv("GRADLEDGER_UPDATE_PAGES") && !run.differing.empty()) std::ofstream(GetParam()) << run.page;
}

INSTANTIATE_TEST_SUITE_P(docs, page_with_commands, ::testing::ValuesIn(pages_with_commands()), [](const auto& info) {
  return std::regex_replace(fs::relative(info.param, source_folder).replace_extension().string(), std::regex("[^A-Za-z0-9]"), "_");
});

// What teaches is run. A block that is not run (```sh) is for what a build machine does not have: a framework, a cluster, a package to install.
TEST(a_page_that_teaches, has_every_command_run_that_needs_no_framework) {
  const std::regex elsewhere("--producer|--python|pip |tools/|ci/|pytest|python3? |podman|git |mpirun|srun|sbatch|torchrun");
  std::size_t pages = 0;
  for (const fs::path& page : all_documents()) {
    const std::string name = fs::relative(page, source_folder / "docs").string();
    if (name != "first-ten-minutes.md" && !(name.starts_with("recipes/") && name != "recipes/README.md")) continue;
    ++pages;
    for (const Fence& fence : read_document(page).fences) {
      if (fence.language != "sh") continue;
      for (const std::string& line : lines_of(fence.text)) EXPECT_TRUE(std::regex_search(line, elsewhere)) << name << ": is not run: " << line;
    }
  }
  EXPECT_EQ(pages, 7u);
}

TEST(what_a_page_shows, differs_where_a_line_does) {
  using Lines = std::vector<std::string>;
  const Lines printed{"a: 1", "b", "c: 2 s", "d"};
  for (const Lines& same :
       std::vector<Lines>{{"a: 1", "b", "c: 2 s", "d"}, {"...", "d"}, {"a: 1", "..."}, {"..."}, {"a: 1", "...", "c: ... s", "..."}, {"a: ...", "b", "...", "c: 2 s", "d"}})
    EXPECT_TRUE(matches(same, printed)) << ::testing::PrintToString(same);
  for (const Lines& other :
       std::vector<Lines>{{"a: 1", "b", "c: 2 s"}, {"...", "e"}, {"b", "..."}, {}, {"a: 1", "...", "c: ... m", "..."}, {"...", "d", "...", "b"}, {"a: 1", "b", "...", "b", "..."}})
    EXPECT_FALSE(matches(other, printed)) << ::testing::PrintToString(other);
  EXPECT_TRUE(matches({}, {}));
  EXPECT_FALSE(matches({}, printed));
}

}  // namespace
}  // namespace gradledger::testing
