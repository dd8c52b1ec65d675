// The page for man(1) has every verb with every option, in requests that groff knows.
#include <set>

#include "tests/docs/command.h"
#include "tests/docs/markdown.h"

namespace gradledger::testing {
namespace {

const std::string& man_page() {
  static const std::string text = run_command({"man"}).output;
  return text;
}

TEST(man_page, has_every_verb_with_every_option_that_its_help_has) {
  const std::string help = run_command({"--help"}).output, verbs = help.substr(help.find("Subcommands:"));
  const std::regex verb("\n  ([a-z]+) "), option("\n +(-[a-z],)?(--[a-z][a-z-]+)");
  std::size_t sections = 0, options = 0;
  for (std::sregex_iterator at(verbs.begin(), verbs.end(), verb), end; at != end; ++at, ++sections) {
    const std::string name = (*at)[1], heading = "\n.SS gradledger " + name;
    const std::size_t begin = man_page().find(heading);
    ASSERT_NE(begin, std::string::npos) << name;
    const std::string section = std::regex_replace(man_page().substr(begin, man_page().find("\n.S", begin + 1) - begin), std::regex(R"(\\-)"), "-");
    const std::string of_verb = run_command({name, "--help"}).output;
    for (std::sregex_iterator one(of_verb.begin(), of_verb.end(), option); one != end; ++one, ++options)
      EXPECT_NE(section.find((*one)[2].str() + "\\fR"), std::string::npos) << name << " " << (*one)[2];
  }
  EXPECT_GT(sections, 8u);
  EXPECT_GT(options, 100u);
  for (const auto& row : listed("exit-codes")) EXPECT_NE(man_page().find("\n.B " + row[0] + "\n"), std::string::npos) << row[0];
}

TEST(man_page, begins_no_line_with_a_request_that_there_is_not) {
  const std::set<std::string> known{".TH", ".SH", ".SS", ".TP", ".B"};
  std::istringstream lines(man_page());
  std::string line;
  std::getline(lines, line);
  EXPECT_TRUE(line.starts_with(".TH GRADLEDGER 1 ")) << line;
  for (; std::getline(lines, line);) {
    EXPECT_FALSE(line.starts_with("'") || line.empty()) << line;
    if (line.starts_with(".")) {
      EXPECT_TRUE(known.contains(line.substr(0, line.find(' ')))) << line;
    }
    EXPECT_TRUE(std::regex_match(line, std::regex(R"(([^\\]|\\-|\\e|\\&|\\f[BIR])*)"))) << line;
  }
}

}  // namespace
}  // namespace gradledger::testing
