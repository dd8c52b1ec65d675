// Every verb takes the format by either name, and refuses what is none.
#include "report/format.h"
#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger {
namespace {

using testing::Outcome;
using testing::run;

std::vector<std::vector<std::string>> commands() {
  return {{"replay", testing::leaking_scenario},
          {"gate", testing::clean_scenario, testing::leaking_scenario},
          {"coverage", (testing::source_folder / "scenarios/deepspeed-7985").string()},
          {"list", "exit-codes"}};
}

TEST(a_format, by_its_name_is_what_the_short_option_gives) {
  for (const std::vector<std::string>& command : commands()) {
    SCOPED_TRACE(command[0]);
    const auto with = [&](std::vector<std::string> options) {
      options.insert(options.begin(), command.begin(), command.end());
      return run(options);
    };
    const Outcome plain = with({}), terminal = with({"--format", "terminal"}), json = with({"--json"}), named = with({"--format", "json"});
    EXPECT_EQ(plain.out, terminal.out);
    EXPECT_EQ(testing::without_seconds(json.out), testing::without_seconds(named.out));
    EXPECT_NE(plain.out, json.out);
    EXPECT_EQ(plain.code, named.code);
    EXPECT_EQ(json.out.front(), '{');
    EXPECT_NE(plain.out.front(), '{');
  }
}

TEST(a_format, that_there_is_not_or_that_is_asked_for_twice_is_refused) {
  expect_complaint(run({"list", "rules", "--format", "papyrus"}), tool::bad_input, "--format: is \"papyrus\"; expected one of terminal, json");
  const Outcome twice = run({"list", "rules", "--format", "json", "--json"});
  EXPECT_NE(testing::record_of(twice)["message"].get<std::string>().find("--json excludes --format"), std::string::npos) << twice.out;
}

}  // namespace
}  // namespace gradledger
