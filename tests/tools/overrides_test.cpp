// --as-of and --config of the verbs that read scenarios, every error of a file, and what was probably meant.
#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

constexpr const char* small = R"({"name": "small", "world_size": 2, "parameters": [{"name": "w", "numel": 8}],
  "engine": {"framework": "deepspeed", "as_of": "0.18.9", "config": {"gradient_accumulation_steps": 1, "zero_optimization": {"stage": 1}}},
  "script": [{"backward": {}}, {"step": {}}], "expect": {"findings": []}})";

TEST(an_override, changes_the_run_and_stands_in_its_report) {
  const TemporaryFolder folder;
  const std::string file = folder.write("s.json", small);
  const std::vector<std::string> with{"replay", file, "--as-of", "0.19.0", "--config", "zero_optimization.stage=2", "--config", "communication_data_type=bfloat16"};
  std::vector<std::string> as_json = with;
  as_json.push_back("--json");
  const json report = testing::record_of(run(as_json));
  EXPECT_EQ(report["as_of"], "0.19.0");
  EXPECT_EQ(report["overrides"], json::parse(R"([{"option": "--as-of", "pointer": "/engine/as_of", "value": "0.19.0"},
    {"option": "--config zero_optimization.stage", "pointer": "/engine/config/zero_optimization/stage", "value": 2},
    {"option": "--config communication_data_type", "pointer": "/engine/config/communication_data_type", "value": "bfloat16"}])"));
  const std::string command = report["command"];
  EXPECT_EQ(command, "gradledger replay " + file + " --as-of 0.19.0 --config zero_optimization.stage=2 --config communication_data_type=bfloat16 --seed 0");
  json again = testing::record_of(shell(command + " --json")), first = report;
  for (json* one : {&again, &first}) one->erase("seconds");
  EXPECT_EQ(again, first);
  EXPECT_NE(run(with).out.find("not as the file says: --as-of 0.19.0, --config zero_optimization.stage=2, --config communication_data_type=bfloat16"), std::string::npos);
  EXPECT_TRUE(testing::record_of(run({"replay", file, "--json"}))["overrides"].empty());
}

TEST(an_override, leaves_what_a_gate_expects_as_it_is) {
  const Outcome as_written = run({"gate", leaking_scenario}), repaired = run({"gate", leaking_scenario, "--as-of", "head"});
  EXPECT_EQ(as_written.code, tool::clean) << as_written.out;
  EXPECT_EQ(repaired.code, tool::findings);
  EXPECT_NE(repaired.out.find("held to what the files expect, and not run as they say: --as-of head"), std::string::npos) << repaired.out;
  const json row = testing::record_of(run({"gate", leaking_scenario, "--as-of", "head", "--json"}));
  EXPECT_EQ(row["as_of"], "head");
  EXPECT_EQ(row["overrides"][0]["option"], "--as-of");
  EXPECT_NE(row["command"].get<std::string>().find(" --as-of head "), std::string::npos);
}

TEST(an_override, is_of_the_files_that_are_named_and_not_of_their_twins) {
  // Its twin has another release already, and no key of this name goes into a configuration of DistributedDataParallel.
  const TemporaryFolder folder;
  json one = json_of(small), twin = json_of(R"({"name": "twin", "world_size": 1, "parameters": [{"name": "w", "numel": 8}],
    "engine": {"framework": "ddp", "config": {}}, "script": [{"backward": {}}, {"step": {}}]})");
  one["twin_of"] = "twin.json";
  folder.write("twin.json", twin.dump());
  const Outcome outcome = run({"gate", folder.write("one.json", one.dump()), "--config", "gradient_accumulation_steps=1"});
  EXPECT_EQ(outcome.code, tool::clean) << outcome.out;
}

TEST(an_override, that_is_wrong_is_one_line_and_bad_input) {
  const TemporaryFolder folder;
  const std::string file = folder.write("s.json", small);
  expect_complaint(run({"replay", file, "--config", "zero_optimization.stage=7"}), tool::bad_input, "gradledger: --config zero_optimization.stage: is 7; expected an integer");
  expect_complaint(run({"replay", file, "--config", "zero_optimization.stge=2"}), tool::bad_input, "did you mean \"stage\"?");
  expect_complaint(run({"replay", file, "--config", "stage"}), tool::bad_input, "--config: is \"stage\"; expected KEY=VALUE");
  expect_complaint(run({"replay", file, "--as-of", "haed"}), tool::bad_input, "gradledger: --as-of: unknown release or change \"haed\"");
  expect_complaint(run({"replay", file, "--as-of", ""}), tool::bad_input, "--as-of: is empty");
  expect_complaint(run({"replay", file, "--as-of", "0.19.0", "--producer", "deepspeed"}), tool::bad_input, "--as-of: says which release is simulated");
  expect_complaint(run({"gate", "--mutants", "--as-of", "0.19.0"}), tool::bad_input, "--as-of");
  expect_complaint(run({"gate", file, "--update", "--config", "gradient_clipping=1"}), tool::bad_input, "--config");
  expect_complaint(run({"explore", "--config", "gradient_clipping=1"}), tool::bad_input, "--config requires FILE");
  expect_complaint(run({"record", file, "-o", folder.path() / "t", "--config", "bf16=5"}), tool::bad_input, "--config bf16: is 5; expected an object");
  EXPECT_EQ(run({"gate", file, "--config", "zero_optimization.stage=7"}).code, tool::bad_input);
}

TEST(an_override, that_is_taken_for_another_release_says_so_by_its_option) {
  const TemporaryFolder folder;
  const Outcome outcome = run({"replay", folder.write("s.json", small), "--as-of", "0.99.0", "--summary"});
  EXPECT_TRUE(outcome.err.starts_with("gradledger: --as-of: ")) << outcome.err;
}

TEST(an_override, is_recorded_and_explored) {
  const TemporaryFolder folder;
  const std::string file = folder.write("s.json", small), trace = folder.path() / "t.jsonl";
  ASSERT_EQ(run({"record", file, "-o", trace, "--config", "zero_optimization.stage=2"}).code, tool::clean);
  EXPECT_NE(text_of(trace).find("\"stage\":2"), std::string::npos);
  const Outcome explored = run({"explore", file, "--length", "2", "--as-of", "0.19.0", "--config", "zero_optimization.stage=2"});
  EXPECT_NE(explored.out.find("gradledger explore --seed 0 " + file + " --as-of 0.19.0 --config zero_optimization.stage=2 --length 2"), std::string::npos)
      << explored.out << explored.err;
}

constexpr const char* five_mistakes = R"({"name": "five", "world_sise": 2, "parameters": [{"name": "w", "numel": -4}],
 "engine": {"framework": "deepspeed", "config": {"zero_optimization": {"stage": 7, "overlap_com": true}}},
 "script": [{"backward": {}}, {"stepp": {}}]})";

TEST(every_error_of_a_file, is_a_line_and_the_exit_code_stays) {
  const TemporaryFolder folder;
  const std::string file = folder.write("s.json", five_mistakes);
  for (const std::vector<std::string>& words : {std::vector<std::string>{"replay", file},
                                                {"replay", "--accounting", file},
                                                {"record", file, "-o", folder.path() / "t"},
                                                {"explore", file},
                                                {"explore", file, "--streams"}}) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, tool::bad_input);
    EXPECT_EQ(outcome.out, "");
    ASSERT_EQ(lines_of(outcome.err).size(), 5u) << outcome.err;
    EXPECT_TRUE(lines_of(outcome.err)[0].starts_with("gradledger: " + file + ":1:32: /world_sise: ")) << outcome.err;
    EXPECT_TRUE(lines_of(outcome.err)[4].starts_with("gradledger: " + file + ":3:41: /script/1/stepp: ")) << outcome.err;
  }
}

TEST(every_error_of_a_file, is_a_record_of_a_replay_and_a_problem_of_a_gate) {
  const TemporaryFolder folder;
  const std::string file = folder.write("s.json", five_mistakes);
  const Outcome replayed = run({"replay", file, "--json"});
  EXPECT_EQ(replayed.code, tool::bad_input);
  const auto records = testing::records_of(replayed);
  ASSERT_EQ(records.size(), 6u) << replayed.out;
  EXPECT_EQ(records[1]["record"], "error");
  const json row = testing::record_of(run({"gate", file, "--json"}));
  EXPECT_EQ(row["error"], "bad input");
  ASSERT_EQ(row["problems"].size(), 5u) << row;
  EXPECT_EQ(row["problems"][1]["rule"], "bad-scenario");
  for (const json& one : {records[1], row["problems"][1]}) {
    EXPECT_EQ(one["file"], file);
    EXPECT_EQ(one["pointer"], "/parameters/0/numel");
    EXPECT_EQ(one["line"], 1);
  }
}

TEST(every_error_of_a_file, is_in_the_results_for_other_programs) {
  const TemporaryFolder folder;
  const std::string file = folder.write("s.json", five_mistakes);
  for (const char* verb : {"replay", "gate"}) {
    const json sarif = json_of(run({verb, file, "--sarif", "-"}).out);
    EXPECT_EQ(sarif["runs"][0]["results"].size(), 5u) << verb;
  }
}

void expect_meant(const std::vector<std::string>& words, const std::string& meant) { expect_complaint(run(words), tool::bad_input, "did you mean \"" + meant + "\"?"); }

TEST(what_was_meant, is_told_of_verbs_options_and_values) {
  const TemporaryFolder folder;
  const std::string file = folder.write("s.json", small);
  expect_meant({"repaly", "x"}, "replay");
  expect_meant({"replay", file, "--sed", "3"}, "--seed");
  expect_meant({"replay", file, "--confg=a=b"}, "--config");
  expect_meant({"gate", file, "-K", "x"}, "-k");
  expect_meant({"list", "enginess"}, "engines");
  expect_meant({"replay", file, "--format", "jsn"}, "json");
  expect_meant({"replay", file, "--color", "alwyas"}, "always");
  expect_meant({"replay", file, "--ranks", "thread"}, "threads");
  expect_meant({"replay", file, "--deliver", "laet"}, "late");
  expect_meant({"replay", file, "--producer", "depspeed"}, "deepspeed");
  expect_meant({"replay", file, "--schedule", "ronud-robin"}, "round-robin");
  expect_meant({"replay", file, "--as-of", "haed"}, "head");
  expect_meant({"completion", "bahs"}, "bash");
  expect_meant({"audit", file, "--framework", "deepsped"}, "deepspeed");
  expect_meant({"audit", file, "--sweep", "release"}, "releases");
  expect_meant({"fuzz", "--switch", "offload_kep=x"}, "offload_keep");
  expect_meant({"fuzz", "--switch", "offload_keep=gate_gs"}, "gate_ga");
  expect_meant({"fuzz", "--engine", "zero22"}, "zero2");
  expect_meant({"fuzz", "--differ", "zero2,zero33"}, "zero3");
  expect_meant({"explore", "--alphabet", "bakcward"}, "backward");
  expect_meant({"explain", "boundary-leek"}, "boundary-leak");
}

TEST(what_was_meant, is_not_said_of_a_word_that_is_known) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"replay", clean_scenario, "--format", "xml"}, {"replay", clean_scenario, "-j", "3"}, {"replay"}}) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, tool::bad_input);
    EXPECT_EQ(outcome.err.find("did you mean"), std::string::npos) << outcome.err;
  }
}

}  // namespace
}  // namespace gradledger::testing
