// "-" in place of a file: what is read, what is refused, and what reports say of it.
#include <fcntl.h>
#include <stdlib.h>

#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

TEST(standard_input, is_replayed_as_a_file_is) {
  const Outcome piped = shell("cat " + leaking_scenario + " | gradledger replay - --seed 3 --json"), file = shell("gradledger replay --seed 3 --json " + leaking_scenario);
  EXPECT_EQ(piped.code, tool::findings) << piped.err;
  const json one = testing::record_of(piped), other = testing::record_of(file);
  EXPECT_EQ(one["file"], "<stdin>");
  EXPECT_EQ(one["command"], "gradledger replay - --seed 3");
  EXPECT_EQ(one["findings"][0]["file"], "<stdin>");
  EXPECT_EQ(one["findings"][0]["line"], other["findings"][0]["line"]);
  EXPECT_EQ(one["trace_hash"], other["trace_hash"]);
  EXPECT_TRUE(one["findings"][0]["line"].is_number());
}

TEST(standard_input, can_stand_between_files) {
  const Outcome outcome = shell("gradledger replay " + clean_scenario + " - --json < " + leaking_scenario);
  EXPECT_EQ(outcome.code, tool::findings) << outcome.err;
  const auto records = testing::records_of(outcome);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[1]["file"], "<stdin>");
}

TEST(standard_input, is_gated_and_says_so) {
  const TemporaryFolder folder;
  json scenario = json_of(text_of(leaking_scenario));
  scenario.erase("twin_of");
  folder.write("s", scenario.dump());
  const Outcome outcome = shell("gradledger gate - --json -k leak < s", folder.path());
  EXPECT_EQ(outcome.code, tool::clean) << outcome.err << outcome.out;
  EXPECT_EQ(testing::record_of(outcome)["file"], "<stdin>");
  EXPECT_EQ(testing::record_of(outcome)["command"], "gradledger replay - --seed 0");
  scenario["expect"] = {{"findings", json::array()}};
  folder.write("s", scenario.dump());
  EXPECT_EQ(shell("gradledger gate - < s", folder.path()).code, tool::findings);
  expect_complaint(shell("gradledger gate - --update < s", folder.path()), tool::bad_input, "--update: changes files; expected none of them from standard input");
  expect_complaint(shell("gradledger gate - --last-failed < s", folder.path()), tool::bad_input, "--last-failed: remembers files; expected none of them from standard input");
}

TEST(standard_input, finds_files_that_it_names_in_the_current_folder) {
  const TemporaryFolder folder;
  folder.write("t.tokens.json", "[[[3], [5]]]");
  const std::string scenario = R"({"name": "s", "world_size": 2, "parameters": [{"name": "w", "numel": 8}], "engine": {"framework": "deepspeed", "config": {}},
    "tokens": {"file": "t.tokens.json"}, "contract": {"divide_by": "tokens"}, "script": [{"backward": {}}, {"step": {}}]})";
  folder.write("s", scenario);
  const Outcome outcome = shell("gradledger replay - --json < s", folder.path());
  EXPECT_TRUE(outcome.code == tool::clean || outcome.code == tool::findings) << outcome.err;
  expect_complaint(shell("gradledger replay - < " + (folder.path() / "s").string(), "/"), tool::bad_input, "<stdin>:2:24: /tokens/file: t.tokens.json: cannot be read");
}

TEST(standard_input, that_is_wrong_is_located_by_line_and_column) {
  expect_complaint(shell("printf '{\\n \"name\": 5,}' | gradledger replay -"), tool::bad_input, "<stdin>:2:12: is not JSON from here on");
  expect_complaint(shell("gradledger gate - --allow-left-out < /dev/null"), tool::bad_input, "<stdin>: is empty or closed; expected what a file would hold");
  expect_complaint(shell("gradledger replay - <&-"), tool::bad_input, "<stdin>: is empty or closed");
  expect_complaint(shell("gradledger replay - < /"), tool::bad_input, "<stdin>: cannot be read: Is a directory");
  expect_complaint(shell("gradledger replay - - < " + clean_scenario), tool::bad_input, "-: is given more than once; standard input can be read once");
  expect_complaint(shell("gradledger replay - '<stdin>' < " + clean_scenario), tool::bad_input, "<stdin>: has the name of standard input");
}

TEST(standard_input, without_an_end_is_read_no_further_than_a_file) {
  expect_complaint(shell("gradledger replay - < /dev/zero"), tool::bad_input, "<stdin>: is larger than is read; expected at most 67108864 bytes");
  expect_complaint(shell("head -c 2000000 /dev/zero | gradledger audit -"), tool::bad_input, "<stdin>: is larger than is read; expected at most 1048576 bytes");
}

TEST(standard_input, that_is_a_terminal_is_not_waited_for) {
  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) GTEST_SKIP() << "no terminals here";
  expect_complaint(shell(std::string("gradledger replay - < ") + ptsname(master)), tool::bad_input, "<stdin>: is a terminal; expected a pipe or a file");
  close(master);
}

TEST(standard_input, is_not_a_file_that_is_called_so) {
  const TemporaryFolder folder;
  folder.write("-", text_of(clean_scenario));
  folder.write("<stdin>", text_of(clean_scenario));
  EXPECT_EQ(testing::record_of(shell("gradledger replay ./- --json", folder.path()))["command"], "gradledger replay ./- --seed 0");
  EXPECT_EQ(testing::record_of(shell("gradledger replay '<stdin>' --json", folder.path()))["command"], "gradledger replay '<stdin>' --seed 0");
}

TEST(standard_input, is_recorded_and_judged) {
  const TemporaryFolder folder;
  const Outcome recorded = shell("gradledger record - -o t.jsonl --json < " + leaking_scenario, folder.path());
  ASSERT_EQ(recorded.code, tool::clean) << recorded.err;
  const Outcome judged = shell("gradledger judge - --summary < t.jsonl", folder.path()), file = shell("gradledger judge t.jsonl --summary", folder.path());
  EXPECT_EQ(judged.code, tool::findings) << judged.err;
  EXPECT_NE(judged.out.find("repeat with: gradledger judge - --summary"), std::string::npos) << judged.out;
  EXPECT_EQ(lines_of(judged.out)[0], lines_of(file.out)[0]);
  EXPECT_EQ(shell("gzip -c t.jsonl | gradledger judge -", folder.path()).code, tool::findings);
  const Outcome none = shell("echo no recording | gradledger conform -");
  EXPECT_EQ(none.code, tool::bad_input);
  EXPECT_TRUE(none.err.starts_with("gradledger: <stdin>:1: ")) << none.err;
}

TEST(standard_input, is_audited_as_json_and_as_yaml) {
  const Outcome outcome = shell("printf '// ZeRO\\n{\"zero_optimization\": {\"stage\": 2}}' | gradledger audit - --deepspeed 0.19.8 --ranks 2 --json");
  EXPECT_TRUE(outcome.code == tool::clean || outcome.code == tool::findings) << outcome.err;
  EXPECT_NE(testing::record_of(outcome)["command"].get<std::string>().find("gradledger audit - --deepspeed"), std::string::npos);
  expect_complaint(shell("printf '{\"zero_optimization\": {\"stage\": 7}}' | gradledger audit -"), tool::bad_input, "<stdin>:1:33: /zero_optimization/stage: is 7");
  const Outcome yaml = shell("printf 'distributed_type: MULTI_GPU\\nnum_processes: 2\\n' | gradledger audit - --json");
  EXPECT_EQ(yaml.err.find("is not JSON"), std::string::npos) << yaml.err;
}

}  // namespace
}  // namespace gradledger::testing
