// How text for people looks, as options and the environment ask for it.
#include "tests/tools/command.h"

#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

// But for the command, which is there to be copied.
std::size_t widest_line(const std::string& text) {
  std::size_t out = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (!text.substr(begin, end - begin).starts_with("repeat with: ")) out = std::max(out, end - begin);
    begin = end + 1;
  }
  return out;
}

TEST(the_look, of_a_bare_call_is_the_help_which_is_no_success) {
  const Outcome outcome = run({});
  EXPECT_EQ(outcome.code, tool::bad_input);
  EXPECT_NE(outcome.out.find("Subcommands:"), std::string::npos);
}

TEST(the_look, in_a_pipe_has_no_colours_and_whole_sentences) {
  const Outcome outcome = run({"replay", leaking_scenario});
  EXPECT_EQ(outcome.out.find('\033'), std::string::npos);
  EXPECT_GT(widest_line(outcome.out), 160u);
}

TEST(the_look, is_coloured_where_that_is_asked_for) {
  EXPECT_NE(run({"replay", leaking_scenario, "--color", "always"}).out.find("\033[31;1m"), std::string::npos);
  EXPECT_EQ(run({"replay", leaking_scenario, "--color", "never"}).out.find('\033'), std::string::npos);
  expect_complaint(run({"replay", leaking_scenario, "--color", "blue"}), tool::bad_input, "--color");
}

// script(1), which every Debian has, gives the command a terminal.
TEST(the_look, on_a_terminal_hears_no_color_and_a_terminal_that_is_dumb) {
  ASSERT_EQ(shell("command -v script").code, 0);
  const std::string call = "script -qec '" GRADLEDGER_COMMAND " replay " + std::string(leaking_scenario) + "' /dev/null";
  const auto coloured = [&](const std::string& environment) { return shell("env -u NO_COLOR " + environment + " " + call).out.find('\033') != std::string::npos; };
  EXPECT_TRUE(coloured("TERM=xterm"));
  EXPECT_FALSE(coloured("TERM=xterm NO_COLOR=1"));
  EXPECT_TRUE(coloured("TERM=xterm NO_COLOR="));
  EXPECT_FALSE(coloured("TERM=dumb"));
}

TEST(the_look, is_as_narrow_as_asked_for) {
  EXPECT_LE(widest_line(run({"replay", leaking_scenario, "--width", "100"}).out), 100u);
  EXPECT_LE(widest_line(run({"gate", leaking_scenario, "--width", "80"}).out), 80u);
  expect_complaint(run({"replay", leaking_scenario, "--width", "7"}), tool::bad_input, "--width");
}

TEST(the_look, is_quiet_or_verbose_and_not_both) {
  const Outcome quiet = run({"replay", leaking_scenario, "-q"}), normal = run({"replay", leaking_scenario}), verbose = run({"replay", leaking_scenario, "-v"});
  EXPECT_LT(quiet.out.size(), normal.out.size());
  EXPECT_LT(normal.out.size(), verbose.out.size());
  EXPECT_NE(quiet.out.find("boundary-leak: "), std::string::npos);
  EXPECT_EQ(quiet.code, tool::findings);
  expect_complaint(run({"replay", leaking_scenario, "-q", "-v"}), tool::bad_input, "--quiet");
}

}  // namespace
}  // namespace gradledger::testing
