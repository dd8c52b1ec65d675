// What every verb prints with --json: each line a record that fits the schema of its name, and the summary last.
#include <map>
#include <set>

#include "tests/support/schema_check.h"
#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

const std::string corpus = (testing::source_folder / "scenarios").string(), racing_scenario = corpus + "/streams/stage-3-side-stream-before-7898.json";

class the_records : public ::testing::Test {
 protected:
  // All that a command prints with --json, seen to be right.
  std::vector<json> of(std::vector<std::string> words) {
    words.emplace_back("--json");
    std::string said;
    for (const std::string& word : words) said += word + " ";
    SCOPED_TRACE(said);
    const Outcome outcome = run(words);
    const std::vector<json> out = records_of(outcome);
    for (const json& record : out) {
      EXPECT_EQ(testing::record_errors(record), "") << record.dump();
      EXPECT_EQ(record["schema_version"], 2);
      EXPECT_EQ(version_, record["tool"]["name"].get<std::string>() + " " + record["tool"]["version"].get<std::string>() + " (commit " +
                              record["tool"]["commit"].get<std::string>() + ", " + record["tool"]["compiler"].get<std::string>() + ", " +
                              record["tool"]["build_type"].get<std::string>() + ")\n");
      EXPECT_TRUE(record["command"].get<std::string>().starts_with("gradledger ")) << record["command"];
      EXPECT_EQ(record["command"].get<std::string>().find("--json"), std::string::npos) << record["command"];
      seen_.insert(record["record"].get<std::string>());
    }
    if (!out.empty()) {
      EXPECT_EQ(out.back()["verb"], words[0]);
    }
    return out;
  }

  const testing::TemporaryFolder folder_;
  const std::string version_ = run({"--version"}).out;
  std::set<std::string> seen_;
};

TEST_F(the_records, of_runs_fit_their_schemas) {
  of({"replay", leaking_scenario, clean_scenario, racing_scenario, corpus + "/loops/107-loss-of-the-trainer-sums.json", corpus + "/zoo/8-cleared-by-every-backward.json"});
  of({"replay", "--accounting", leaking_scenario});
  of({"gate", corpus + "/deepspeed-7981", corpus + "/values"});
  of({"gate", "--mutants", "--mutant", "micro-batch-lost"});
  of({"coverage", corpus + "/deepspeed-7985"});
  of({"audit", (testing::source_folder / "tests/audit/files/zero2_offload.json").string(), "--deepspeed", "0.18.6", "--ranks", "2", "--sweep", "stages"});
  const std::string trace = folder_.path() / "trace.jsonl";
  of({"record", leaking_scenario, "-o", trace});
  of({"judge", trace});
  of({"conform", trace});
  EXPECT_EQ(seen_, (std::set<std::string>{"replay", "accounting", "gate", "mutant", "entry", "audit", "trace", "run", "summary"}));
}

TEST_F(the_records, of_searches_and_tables_fit_their_schemas) {
  const std::string findings = folder_.path() / "findings";
  of({"fuzz", "--findings", findings, "--as-of", "0.18.9", "--engine", "zero2-offload", "--cases", "8"});
  of({"fuzz", "--findings", findings, "--cases", "4"});
  of({"fuzz", "--findings", findings, "--differ", "0.18.9,0.19.6", "--engine", "zero2-offload", "--cases", "8"});
  of({"fuzz", "--catalogue", racing_scenario, "--cases", "1"});
  of({"explore", "--engine", "zero1", "--length", "3", "--any-script"});
  of({"explore", "--streams", racing_scenario});
  for (const char* what : {"frameworks", "engines", "events", "behaviours", "changes", "releases", "findings", "rules", "buffers", "entries", "models", "schemas", "exit-codes"})
    of({"list", what});
  of({"explain", "boundary-leak"});
  EXPECT_EQ(seen_, (std::set<std::string>{"finding", "campaign", "difference", "hunt", "engine", "streams", "table", "summary"}));
}

TEST_F(the_records, of_errors_have_their_place_and_the_exit_code) {
  const std::string wrong = folder_.write("wrong.json", R"({
  "name": 1, "world_size": 1, "parameters": [{"name": "w", "numel": 4}], "engine": {"framework": "deepspeed", "config": {}}, "script": [{"backward": {}}, {"step": {}}]})"),
                    missing = folder_.path() / "none.json";
  const auto replayed = of({"replay", wrong, missing, clean_scenario});
  ASSERT_EQ(replayed.size(), 4u);
  EXPECT_EQ(replayed[0]["record"], "error");
  EXPECT_EQ(replayed[0]["file"], wrong);
  EXPECT_EQ(replayed[0]["line"], 2);
  EXPECT_EQ(replayed[0]["column"], 11);
  EXPECT_EQ(replayed[0]["pointer"], "/name");
  EXPECT_EQ(replayed[0]["exit_code"], tool::bad_input);
  EXPECT_EQ(replayed[1]["file"], missing);
  EXPECT_EQ(replayed[2]["verdict"], "clean") << "what is right is judged all the same";
  EXPECT_EQ(replayed[3]["errors"], 2);
  EXPECT_EQ(replayed[3]["exit_code"], tool::bad_input);
  const auto option = of({"replay", clean_scenario, "--seed", "-1"});
  ASSERT_EQ(option.size(), 2u);
  EXPECT_EQ(option[0]["option"], "--seed");
  EXPECT_EQ(option[1]["seed"], nullptr);
  EXPECT_EQ(of({"explain", "boundary-leek"}).at(0)["option"], "WHAT");
  EXPECT_EQ(of({"replay", clean_scenario, "--memory-limit", "1kb"}).at(0)["exit_code"], tool::unavailable);
  EXPECT_EQ(records_of(run({"list", "papyrus", "--format", "json"})).at(0)["record"], "error");
  EXPECT_EQ(records_of(run({"list", "papyrus", "--format=json"})).at(0)["record"], "error");
  EXPECT_EQ(run({"list", "papyrus", "--", "--json"}).out, "") << "a file of that name asks for nothing";
}

TEST(the_summary, has_the_command_without_what_changes_its_form_alone) {
  const Outcome outcome = run({"gate", "--jobs", "2", "--format", "json", clean_scenario, "-k", "leak"});
  EXPECT_EQ(records_of(outcome).back()["command"], "gradledger gate " + clean_scenario + " -k leak");
}

TEST(schema, prints_each_schema_that_is_listed) {
  std::size_t printed = 0;
  const json table = testing::record_of(run({"list", "schemas", "--json"}));
  for (const json& row : table["rows"]) {
    const Outcome outcome = run({"schema", row["schema"]});
    EXPECT_EQ(outcome.code, tool::clean);
    EXPECT_TRUE(json_of(outcome.out).contains("$schema")) << row;
    ++printed;
  }
  EXPECT_GT(printed, 20u);
  expect_complaint(run({"schema", "replai"}), tool::bad_input, "NAME: replai is no schema; expected one that `gradledger list schemas` shows; did you mean \"replay\"?");
}

}  // namespace
}  // namespace gradledger::testing
