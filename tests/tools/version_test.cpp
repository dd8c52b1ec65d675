// Every report says which program made it: --version in one line, and the same in every JSON.
#include <regex>

#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

TEST(version, is_one_line_of_the_number_the_commit_the_compiler_and_the_build) {
  const Outcome outcome = run({"--version"});
  EXPECT_EQ(outcome.code, tool::clean);
  EXPECT_EQ(outcome.err, "");
  EXPECT_TRUE(std::regex_match(outcome.out, std::regex("gradledger [0-9]+\\.[0-9]+\\.[0-9]+ \\(commit [\\w.-]+, [A-Za-z]+ [0-9.]+, [A-Za-z]*(, [a-z ]*sanitizers?)?\\)\n")))
      << outcome.out;
}

TEST(version, of_the_project_is_the_one_that_is_printed) {
  std::smatch project;
  const std::string lists = testing::text_of(testing::source_folder / "CMakeLists.txt");
  ASSERT_TRUE(std::regex_search(lists, project, std::regex(R"(project\(gradledger VERSION ([0-9.]+))")));
  EXPECT_TRUE(run({"--version"}).out.starts_with("gradledger " + project[1].str() + " "));
}

TEST(version, heads_a_trace) {
  const testing::TemporaryFolder folder;
  const std::string trace = folder.path() / "t.jsonl";
  EXPECT_EQ(run({"replay", testing::clean_scenario, "--trace", trace}).code, tool::clean);
  const json head = json_of(lines_of(testing::text_of(trace)).at(0));
  EXPECT_EQ(head["record"], "start");
  EXPECT_EQ(head["tool"]["name"], "gradledger");
}

}  // namespace
}  // namespace gradledger::testing
