// The verb: exit codes, output, files that it writes.
#include <fstream>

#include "tests/audit/support.h"

namespace gradledger::testing {
namespace {

std::vector<std::string> words(const std::string& file, std::vector<std::string> more) {
  more.insert(more.begin(), {"audit", audit_file(file)});
  return more;
}

TEST(audit, exits_with_1_where_affected_and_with_0_where_not) {
  const Outcome affected = run(words("zero2_offload.json", {"--deepspeed", "0.18.6", "--ranks", "2"}));
  EXPECT_EQ(affected.code, 1) << affected.err;
  EXPECT_NE(affected.out.find("AFFECTED: loses 6 of 8"), std::string::npos) << affected.out;
  const Outcome clean = run(words("zero2_offload.json", {"--deepspeed", "0.19.8", "--ranks", "2"}));
  EXPECT_EQ(clean.code, 0) << clean.err << clean.out;
  EXPECT_NE(clean.out.find("not affected"), std::string::npos);
}

TEST(audit, exits_with_2_and_all_errors_on_bad_input) {
  const Outcome outcome = run(words("many_mistakes.json", {"--loop", "deepspeed"}));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(lines_of(outcome.err).size(), 5u) << outcome.err;
  expect_complaint(run(words("zero2_offload.json", {"--loop", "hf-trainr"})), 2, "did you mean \"hf-trainer\"?");
  expect_complaint(run(words("no_such_file.json", {})), 2, "no_such_file.json");
  expect_complaint(run(words("zero2_offload.json", {"--deepspeed", "banana"})), 2, "--deepspeed");
  expect_complaint(run(words("zero2_offload.json", {"--micro-batches", "3"})), 2, "--micro-batches");
  expect_complaint(run(words("zero2_offload.json", {"--transformers", "4.1", "--loop", "hf-trainer"})), 2, "--release transformers");
  expect_complaint(run({"audit"}), 2, "FILE");
}

TEST(audit, takes_a_script_of_megatron_from_standard_input) {
  const Outcome outcome = shell("cat '" + audit_file("megatron_pretrain.sh") + "' | '" GRADLEDGER_COMMAND "' audit - --release megatron-core=0.16.1");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("8 ranks, 8 micro-batches a window"), std::string::npos) << outcome.out;
}

TEST(audit, exits_with_4_where_memory_is_too_small) { expect_complaint(run(words("zero2_offload.json", {"--memory-limit", "1kb"})), 4, "--memory-limit"); }

TEST(audit, writes_a_scenario_that_replays_to_the_same) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "audit.json";
  const Outcome outcome = run(words("zero2_offload.json", {"--deepspeed", "0.18.6", "--ranks", "2", "--json", "--write-scenario", path}));
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  const json report = testing::record_of(outcome);
  EXPECT_EQ(report["record"], "audit");
  ASSERT_FALSE(report["findings"].empty());
  EXPECT_EQ(report["findings"][0]["file"], path);
  EXPECT_TRUE(testing::json_of(testing::text_of(path)).contains(json::json_pointer(report["findings"][0]["pointer"].get<std::string>()))) << report["findings"][0];
  EXPECT_EQ(report["outcome"], "affected");
  EXPECT_EQ(report["scenario"], path);
  const Outcome replayed = shell(report["replay_command"].get<std::string>());
  EXPECT_EQ(replayed.code, 1) << replayed.err;
  EXPECT_NE(replayed.out.find("offload-loss"), std::string::npos);
  expect_complaint(run(words("zero2_offload.json", {"--write-scenario", audit_file("zero2_offload.json")})), 2, "--write-scenario");
}

TEST(audit, repeats_itself_by_the_command_that_it_prints) {
  const Outcome outcome = run(words("zero2_offload.json", {"--deepspeed", "0.18.6", "--ranks", "2", "--json"}));
  const auto report_of = [](const Outcome& of) { return testing::without_seconds(testing::lines_of(of.out).at(0)); };
  EXPECT_EQ(report_of(shell(testing::record_of(outcome)["command"].get<std::string>() + " --json")), report_of(outcome));
}

TEST(audit, takes_the_script_of_a_scenario) {
  const std::string script = (source_folder / "scenarios/deepspeed-7981/ga-8-offload-first-and-last-only-0.18.9.json").string();
  const Outcome outcome = run(words("zero2_offload.json", {"--deepspeed", "0.18.6", "--script", script}));
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.out.find("loses 6 of 8"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("4 ranks, 8 micro-batches a window, 2 windows"), std::string::npos) << outcome.out;
}

TEST(audit, asks_an_interpreter_for_its_releases) {
  const TemporaryFolder folder;
  const std::string python = folder.path() / "python";
  std::ofstream(python) << "#!/bin/sh\necho '{\"deepspeed\": \"0.18.6\", \"Transformers\": \"4.54.1\"}'\n";
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  const Outcome outcome = run(words("zero2_offload.json", {"--python", python, "--ranks", "2", "--json"}));
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_EQ(testing::record_of(outcome)["read"]["release"], "0.18.6");
  std::ofstream(python) << "#!/bin/sh\nexit 3\n";
  expect_complaint(run(words("zero2_offload.json", {"--python", python})), 2, "--python");
  expect_complaint(run(words("zero2_offload.json", {"--python", "/no/such/python"})), 2, "--python");
}

}  // namespace
}  // namespace gradledger::testing
