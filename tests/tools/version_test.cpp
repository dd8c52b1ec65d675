// Every report says which program made it: --version in one line, and the same in every JSON.
#include <regex>

#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger {
namespace {

using testing::json;
using testing::json_of;
using testing::lines_of;
using testing::Outcome;
using testing::run;

const std::string scenarios = (testing::source_folder / "scenarios").string();

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

// The objects "tool" of a command's output, one for each record that has a schema_version.
std::vector<json> tools_of(const std::vector<std::string>& arguments) {
  const Outcome outcome = run(arguments);
  std::vector<json> records, tools;
  if (arguments[0] == "list") records.push_back(json_of(outcome.out));  // over several lines
  else
    for (const std::string& line : lines_of(outcome.out)) records.push_back(json_of(line));
  for (const json& record : records) {
    EXPECT_EQ(record.contains("schema_version"), record.contains("tool")) << record.dump();
    if (record.contains("tool")) tools.push_back(record["tool"]);
  }
  return tools;
}

TEST(version, is_in_every_json_that_is_printed_and_the_same_everywhere) {
  const testing::TemporaryFolder folder;
  const std::string findings = folder.path() / "findings", racing = scenarios + "/streams/stage-3-side-stream-before-7898.json";
  const std::string number = run({"--version"}).out;
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"replay", "--json", testing::leaking_scenario},
                                             {"replay", "--json", "--accounting", testing::leaking_scenario},
                                             {"gate", "--json", testing::clean_scenario},
                                             {"gate", "--mutants", "--mutant", "micro-batch-lost", "--json"},
                                             {"coverage", "--json", scenarios + "/deepspeed-7985"},
                                             {"list", "findings", "--json"},
                                             {"fuzz", "--findings", findings, "--engine", "zero2-offload", "--cases", "4", "--json"},
                                             {"fuzz", "--findings", findings, "--differ", "0.18.9,0.19.6", "--engine", "zero2-offload", "--cases", "8", "--json"},
                                             {"fuzz", "--catalogue", racing, "--cases", "1", "--json"},
                                             {"explore", "--engine", "zero1", "--length", "2", "--json"},
                                             {"explore", "--streams", racing, "--json"}}) {
    SCOPED_TRACE(arguments[0] + " " + arguments[1]);
    const std::vector<json> tools = tools_of(arguments);
    ASSERT_FALSE(tools.empty());
    for (const json& tool : tools) {
      EXPECT_EQ(tool.size(), 5u);
      const auto field = [&](const char* name) { return tool.at(name).get<std::string>(); };
      EXPECT_EQ(number, field("name") + " " + field("version") + " (commit " + field("commit") + ", " + field("compiler") + ", " + field("build_type") + ")\n");
    }
  }
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
}  // namespace gradledger
