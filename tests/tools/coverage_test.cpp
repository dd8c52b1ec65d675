// What the exit code of coverage says.
#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

TEST(coverage_verb, fails_where_an_entry_is_open) {
  const Outcome outcome = run({"coverage", (source_folder / "scenarios/deepspeed-7985").string()});
  EXPECT_EQ(outcome.code, tool::findings);
  EXPECT_NE(outcome.out.find("open: no scenario, and no reason for having none"), std::string::npos) << outcome.out;
}

TEST(coverage_verb, fails_where_the_page_is_out_of_date_though_nothing_is_open) {
  const TemporaryFolder folder;
  const std::string page = folder.write("coverage.md", "an older page");
  const Outcome outcome = run({"coverage", (source_folder / "scenarios").string(), "--check", page});
  EXPECT_EQ(outcome.code, tool::findings);
  EXPECT_NE(lines_of(outcome.out).back().find(" 0 open; " + page + " is out of date"), std::string::npos) << lines_of(outcome.out).back();
}

}  // namespace
}  // namespace gradledger::testing
