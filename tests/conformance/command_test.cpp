// gradledger conform as it is called: what it prints, and its exit codes.
#include <sstream>

#include "tests/conformance/recordings.h"
#include "tests/tools/command.h"

namespace gradledger::conform {
namespace {

using nlohmann::json;

std::string last_line(const testing::Outcome& outcome) { return outcome.out.substr(outcome.out.rfind('\n', outcome.out.size() - 2) + 1); }

class the_command : public ::testing::Test {
 protected:
  static testing::Outcome call(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "conform");
    return testing::run(std::move(arguments));
  }

  std::string written(const std::string& name, const std::string& content) const { return folder_.write(name, content); }

  // A recording that agrees, with one weight altered.
  std::string differing() const {
    RecordedRun run = run_named("rounding", "accdtype_fp32_z2", "head");
    run.ranks[0].back().parameters[0][0] = 5;
    return written("differs.jsonl", to_recorder_format(run).dump() + "\n");
  }

  testing::TemporaryFolder folder_;
};

TEST_F(the_command, prints_a_line_for_each_run_and_totals_last) {
  const testing::Outcome called = call({data_file("rounding")});
  EXPECT_EQ(called.code, 0);
  EXPECT_EQ(called.err, "");
  EXPECT_EQ(std::count(called.out.begin(), called.out.end(), '\n'), 53);
  EXPECT_TRUE(called.out.starts_with("agrees              ")) << called.out;
  EXPECT_EQ(last_line(called), "52 agree, 0 differ, 0 cannot be expressed; 6093 elements and 418 collectives compared\n");
}

TEST_F(the_command, says_where_a_run_differs_and_exits_with_1) {
  const testing::Outcome called = call({differing()});
  EXPECT_EQ(called.code, 1);
  const std::string where = "differs             accdtype_fp32_z2 at head: rank 0, operation 6 (step): weight 0 of parameter 0 is 5 recorded, ";
  EXPECT_TRUE(called.out.starts_with(where)) << called.out;
  EXPECT_TRUE(last_line(called).starts_with("0 agree, 1 differ, 0 cannot be expressed; ")) << last_line(called);
}

TEST_F(the_command, adds_up_over_files_and_lets_the_worst_decide) {
  const testing::Outcome called = call({data_file("rounding"), differing(), data_file("odd_orders")});
  EXPECT_EQ(called.code, 1);
  EXPECT_TRUE(last_line(called).starts_with("359 agree, 1 differ, 0 cannot be expressed; ")) << last_line(called);
}

TEST_F(the_command, does_not_pass_where_no_run_can_be_expressed) {
  const testing::Outcome called = call({written("zenflow.jsonl", lines_that_cannot_be_expressed(18))});
  EXPECT_EQ(called.code, 4);
  EXPECT_EQ(last_line(called), "0 agree, 0 differ, 18 cannot be expressed; 0 elements and 0 collectives compared\n");
  EXPECT_EQ(called.err, "gradledger: nothing was judged: none of 18 runs can be expressed\n");
}

TEST_F(the_command, exits_with_2_and_one_line_for_input_that_is_bad) {
  const std::pair<std::string, std::string> inputs[] = {
      {written("empty.jsonl", ""), ": holds no recording; judging nothing does not pass\n"},
      {written("text.gz", "no gzip"), ":1: is damaged or cut short here; expected a whole gzip file\n"},
      {folder_.path() / "none", ": cannot be read: No such file or directory\n"},
      {written("lacks.jsonl", "\n{\"format\": \"gradledger recording 1\"}\n"), ":2: lacks \"name\"\n"},
      {written("list.jsonl", "[]\n"), ":1: is an array of 0; expected an object\n"},
  };
  for (const auto& [file, error] : inputs) {
    const testing::Outcome called = call({file});
    EXPECT_EQ(called.code, 2) << file;
    EXPECT_EQ(called.err, "gradledger: " + file + error);
    EXPECT_TRUE(called.out.starts_with("0 agree, 0 differ, 0 cannot be expressed")) << called.out;
  }
  const testing::Outcome syntax = call({written("syntax.jsonl", "{\"a\": }\n")});
  EXPECT_EQ(syntax.code, 2);
  EXPECT_NE(syntax.err.find("syntax.jsonl:1: "), std::string::npos) << syntax.err;
  EXPECT_EQ(std::count(syntax.err.begin(), syntax.err.end(), '\n'), 1) << syntax.err;
}

TEST_F(the_command, goes_on_to_the_next_file_after_one_that_is_bad) {
  const testing::Outcome called = call({written("list.jsonl", "[]\n"), data_file("rounding"), differing()});
  EXPECT_EQ(called.code, 2);
  EXPECT_TRUE(last_line(called).starts_with("52 agree, 1 differ, ")) << last_line(called);
}

TEST_F(the_command, exits_with_2_for_options_that_it_does_not_know_and_0_for_help) {
  EXPECT_EQ(call({}).code, 2);
  EXPECT_EQ(call({"--colour", data_file("rounding")}).code, 2);
  const testing::Outcome help = call({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.out.find("--json"), std::string::npos);
}

TEST_F(the_command, prints_objects_of_a_fixed_shape_with_json) {
  const testing::Outcome called = call({"--json", differing(), written("zenflow.jsonl", lines_that_cannot_be_expressed(18)), data_file("rounding")});
  EXPECT_EQ(called.code, 1);
  const std::vector<json> records = testing::records_of(called);
  ASSERT_EQ(records.size(), 1u + 18 + 52 + 1);
  std::uint64_t elements = 0, collectives = 0;
  for (std::size_t i = 0; i + 1 < records.size(); ++i) {
    const json& run = records[i];
    EXPECT_EQ(run.at("record"), "run");
    elements += run.at("elements_compared").get<std::uint64_t>();
    collectives += run.at("collectives_compared").get<std::uint64_t>();
  }
  EXPECT_EQ(records[0].at("outcome"), "differs");
  EXPECT_EQ(records[1].at("outcome"), "cannot be expressed");
  EXPECT_EQ(records[19].at("outcome"), "agrees");
  EXPECT_TRUE(records[19].at("why").is_null());
  const json expected{{"agree", 52},
                      {"agree_in_part", 0},
                      {"differ", 1},
                      {"cannot_be_expressed", 18},
                      {"cannot_be_read", 0},
                      {"elements_compared", elements},
                      {"collectives_compared", collectives}};
  EXPECT_EQ(records.back().at("counts"), expected);
}

}  // namespace
}  // namespace gradledger::conform
