// What a shell offers, asked of the shell.
#include <fstream>

#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

// What bash offers for the last of these words.
std::string offered(const std::string& words) {
  const Outcome outcome = shell("bash -c 'source <(" + std::string(GRADLEDGER_COMMAND) + " completion bash); COMP_WORDS=(gradledger " + words +
                                "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _gradledger; echo ${COMPREPLY[@]}'");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.out;
}

TEST(completion, offers_verbs_options_and_values) {
  EXPECT_EQ(offered("cov"), "coverage\n");
  EXPECT_EQ(offered("replay --mem"), "--memory-limit\n");
  EXPECT_EQ(offered("mer"), "merge\n");
  EXPECT_EQ(offered("merge --exp"), "--expect\n");
  EXPECT_EQ(offered("fuzz --rec"), "--records\n");
  EXPECT_EQ(offered("replay --color a"), "auto always\n");
  EXPECT_EQ(offered("list fi"), "findings\n");
  EXPECT_EQ(offered("rank"), "\n") << "which nobody but gradledger starts";
}

TEST(completion, offers_files_where_files_are_meant) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "a-scenario.json") << "{}";
  EXPECT_EQ(offered("replay " + folder.path().string() + "/a-s"), (folder.path() / "a-scenario.json").string() + "\n");
}

TEST(completion, is_there_for_three_shells_and_no_other) {
  EXPECT_TRUE(run({"completion", "zsh"}).out.starts_with("#compdef gradledger\n"));
  EXPECT_NE(run({"completion", "fish"}).out.find("complete -c gradledger -n '__fish_seen_subcommand_from replay' -l seed"), std::string::npos);
  expect_complaint(run({"completion", "tcsh"}), tool::bad_input, "SHELL");
}

}  // namespace
}  // namespace gradledger::testing
