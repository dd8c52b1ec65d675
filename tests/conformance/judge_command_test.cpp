// gradledger judge as it is called: the report of each run, and its exit codes.
#include <sstream>

#include "tests/conformance/recordings.h"
#include "tests/tools/command.h"

namespace gradledger::conform {
namespace {

using nlohmann::json;

constexpr const char* leaking = "c3_bf16opt_ga1_boundary";

class judge_command : public ::testing::Test {
 protected:
  static testing::Outcome call(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "judge");
    return testing::run(std::move(arguments));
  }

  // A file of this run in these states of the code.
  std::string file_of(const std::string& run, const std::vector<std::string>& versions) const {
    std::string text;
    for (const std::string& version : versions) text += to_recorder_format(run_named("bf16_optimizer", run, version)).dump() + "\n";
    return folder_.write(run + ".jsonl", text);
  }

  testing::TemporaryFolder folder_;
};

TEST_F(judge_command, prints_the_report_of_a_replay_and_exits_with_1_where_there_are_findings) {
  const std::string file = file_of(leaking, {"pre7985"});
  const testing::Outcome outcome = call({file});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err, "");
  const std::string command = "gradledger judge " + file + " --run " + leaking;
  EXPECT_TRUE(outcome.out.starts_with(std::string(leaking) + ": boundary-leak\n# BF16_Optimizer as of before #7985, ")) << outcome.out.substr(0, 300);
  EXPECT_NE(outcome.out.find("\nrepeat with: " + command + "\n"), std::string::npos) << outcome.out;
  for (const char* part :
       {"; producer recording\n", "\nevents: the gradients that ranks held", "[0 for 1/2]", "\nboundary-leak: ", "\n  whose: framework", "\n  known: catalogue-",
        "\njudged: ", "\none pass, of a run that is over; no recording tells: ", "\nboundary-leak       in 1 run\n", "\n0 clean, 1 with findings, 0 not judged; "})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  EXPECT_EQ(testing::shell(command).out, outcome.out);
}

TEST_F(judge_command, exits_with_0_where_all_that_was_judged_is_clean) {
  const testing::Outcome outcome = call({file_of(leaking, {"post7985"}), "--summary"});
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_EQ(outcome.out.find("\nevents: the gradients"), std::string::npos) << "--summary";
  EXPECT_NE(outcome.out.find("\n1 clean, 0 with findings, 0 not judged; "), std::string::npos) << outcome.out;
}

TEST_F(judge_command, judges_the_runs_of_one_name_alone_where_it_is_asked_to) {
  const testing::Outcome some = call({data_file("bf16_optimizer"), "--summary", "--run", leaking});
  std::size_t runs = 0;
  for (const RecordedRun& run : runs_of("bf16_optimizer")) runs += run.name == leaking;
  std::size_t reports = 0;
  for (const std::string& line : testing::lines_of(some.out)) reports += line.starts_with("repeat with: gradledger judge");
  EXPECT_EQ(reports, runs);
  const testing::Outcome none = call({data_file("bf16_optimizer"), "--run", "nobody"});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("has no run \"nobody\""), std::string::npos) << none.err;
}

TEST_F(judge_command, calls_a_file_bad_input_of_which_nothing_was_judged) {
  RecordedRun run = run_named("bf16_optimizer", leaking, "post7985");
  for (auto& moments : run.ranks)
    for (RecordedMoment& moment : moments) moment.parameters.clear();
  const std::string file = folder_.write("none.jsonl", to_recorder_format(run).dump() + "\n");
  const testing::Outcome outcome = call({file, "--summary"});
  EXPECT_EQ(outcome.code, 2) << outcome.out;
  EXPECT_EQ(outcome.err, "gradledger: " + file + ": nothing was judged: none of 1 run shows a gradient that is due\n");
  const testing::Outcome left_out = call({folder_.write("zenflow.jsonl", lines_that_cannot_be_expressed(2))});
  EXPECT_EQ(left_out.code, 2);
  EXPECT_NE(left_out.out.find("not judged          "), std::string::npos) << left_out.out;
  EXPECT_NE(left_out.out.find(": cannot be expressed: configuration: "), std::string::npos) << left_out.out;
}

TEST_F(judge_command, goes_on_after_a_line_that_it_cannot_read_and_says_so_with_its_exit_code) {
  const std::string good = to_recorder_format(run_named("bf16_optimizer", leaking, "post7985")).dump();
  const std::string file = folder_.write("mixed.jsonl", "{\"name\": 1}\n" + good + "\nno json\n" + good + "\n");
  for (const char* verb : {"judge", "conform"}) {
    const testing::Outcome outcome = testing::run({verb, file, "--json"});
    EXPECT_EQ(outcome.code, 2) << verb;
    EXPECT_EQ(testing::lines_of(outcome.err).size(), 2u) << outcome.err;
    EXPECT_NE(outcome.err.find(file + ":1: "), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find(file + ":3: "), std::string::npos) << outcome.err;
    const std::vector<json> records = testing::records_of(outcome);
    EXPECT_EQ(records.back()["counts"]["cannot_be_read"], 2);
    EXPECT_EQ(records.back()["counts"][std::string(verb) == "judge" ? "clean" : "agree"], 2);
    EXPECT_EQ(records.back()["errors"], 2);
    EXPECT_EQ(records[0]["record"], "error") << "in the order of the file";
    EXPECT_EQ(records[0]["file"], file);
    EXPECT_EQ(records[0]["line"], 1);
  }
}

TEST_F(judge_command, leaves_runs_of_other_frameworks_to_those_who_know_them) {
  const std::string file = folder_.write("other.jsonl", "{\"framework\": \"jax\", \"name\": \"a\", \"version\": \"2.13.0\"}\n");
  const testing::Outcome compared = testing::run({"conform", file}), judged = call({file});
  EXPECT_EQ(compared.code, 4);
  EXPECT_TRUE(compared.out.starts_with("cannot be expressed a at 2.13.0: framework \"jax\" has no replay\n")) << compared.out;
  EXPECT_EQ(judged.code, 2);
  EXPECT_NE(judged.out.find("this one is of jax"), std::string::npos) << judged.out;
}

TEST_F(judge_command, has_an_object_for_each_run_and_one_of_totals) {
  const testing::Outcome outcome = call({file_of(leaking, {"pre7985", "post7985"}), "--json"});
  const std::vector<json> records = testing::records_of(outcome);
  ASSERT_EQ(records.size(), 3u);
  const json &leak = records[0], &clean = records[1], &totals = records[2];
  EXPECT_EQ(leak["verdict"], "findings");
  EXPECT_EQ(leak["findings"][0]["class"], "boundary-leak");
  EXPECT_EQ(leak["findings"][0]["blame"]["whose"], "framework");
  EXPECT_EQ(leak["producer"], "recording");
  EXPECT_TRUE(leak["run_that_is_over"]["recordings_do_not_tell"].is_string());
  EXPECT_EQ(clean["verdict"], "clean");
  EXPECT_EQ(totals["counts"]["clean"], 1);
  EXPECT_EQ(totals["counts"]["with_findings"], 1);
  EXPECT_EQ(totals["classes"], (json{{"boundary-leak", 1}}));
}

}  // namespace
}  // namespace gradledger::conform
