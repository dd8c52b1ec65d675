// The exhaustive search says what it went through, whether that was all, and what went wrong there.
#include <algorithm>
#include <regex>

#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/mpi.h"

namespace gradledger::testing {
namespace {

const std::string scenarios = source_folder / "scenarios";
const std::string joined = scenarios + "/streams/side-stream-joined-stage-1.json";
const std::string racing = scenarios + "/streams/stage-3-side-stream-before-7898.json";

Outcome explore(std::vector<std::string> options) {
  options.insert(options.begin(), "explore");
  return run(std::move(options));
}

// Without the summary.
std::vector<json> explore_records(const Outcome& outcome) {
  std::vector<json> out = testing::records_of(outcome);
  if (!out.empty()) out.pop_back();
  return out;
}

bool shows(const Outcome& outcome, const std::string& part) { return outcome.out.find(part) != std::string::npos; }

void expect_explore_refused(std::vector<std::string> options, const std::string& part) { expect_complaint(explore(std::move(options)), tool::bad_input, part); }

TEST(explore, of_events_that_lose_nothing_is_complete_and_clean) {
  const Outcome outcome = explore({"--engine", "zero0", "--alphabet", "backward,step", "--length", "5"});
  EXPECT_EQ(outcome.code, tool::clean) << outcome.out << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const auto lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 2u) << outcome.out;
  EXPECT_EQ(lines[0], "# gradledger explore --seed 0 --engine zero0 --alphabet backward,step --length 5");
  EXPECT_TRUE(lines[1].starts_with("zero0: complete up to 5 events; ")) << lines[1];
}

// A parameter is cut, one summed and one a copy on each of two ranks, beside two others that hold the same.
TEST(explore, of_tensor_parallel_ranks_is_clean_as_documented_and_names_what_a_loop_loses) {
  for (const char* engine : {"ddp", "fsdp2"}) {
    const std::vector<std::string> world{"--engine", engine, "--world-size", "4", "--tensor-parallel", "2", "--alphabet", "no_sync,end,backward,step,engine.zero_grad",
                                         "--length", "4"};
    std::vector<std::string> any = world;
    any.push_back("--any-script");
    const Outcome documented = explore(world), all = explore(any);
    EXPECT_EQ(documented.code, tool::clean) << documented.out << documented.err;
    EXPECT_TRUE(shows(documented, std::string(engine) + ": complete up to 4 events; ")) << documented.out;
    EXPECT_TRUE(shows(documented, "--world-size 4 --tensor-parallel 2")) << documented.out;
    EXPECT_EQ(all.code, tool::findings);
    EXPECT_TRUE(shows(all, "4 ranks: no_sync{ backward step }, usage")) << all.out;
  }
  expect_explore_refused({"--engine", "ddp", "--world-size", "4", "--tensor-parallel", "3"}, "--tensor-parallel: is 3, which does not divide the 4 ranks of --world-size");
  for (const char* engine : {"fsdp1", "megatron", "zero2"})
    expect_explore_refused({"--engine", engine, "--world-size", "4", "--tensor-parallel", "2"},
                           std::string("as ddp and fsdp2, which --engine names; ") + engine + " is none of them");
}

TEST(explore, of_an_old_release_names_the_shortest_sequences_that_go_wrong) {
  const auto at = [](const char* change) { return explore({"--engine", "bf16-optimizer", "--alphabet", "backward,step", "--length", "3", "--any-script", "--as-of", change}); };
  const Outcome before = at("before #7985"), after = at("#7985");
  EXPECT_EQ(before.code, tool::findings);
  EXPECT_EQ(lines_of(before.out).at(0), "# gradledger explore --seed 0 --engine bf16-optimizer --as-of 'before #7985' --alphabet backward,step --any-script --length 3");
  EXPECT_TRUE(shows(before, "complete up to 3 events")) << before.out;
  EXPECT_TRUE(shows(before, "\n  boundary-leak         2 ranks: backward\n")) << before.out;
  EXPECT_FALSE(shows(after, "boundary-leak")) << after.out;
  // Of either, a step that no backward came before.
  for (const Outcome& outcome : {before, after}) EXPECT_TRUE(shows(outcome, "\n  engine-error          2 ranks: step, usage (one-backward-a-step)\n")) << outcome.out;
}

// What loses gradients by the documentation is not looked for, and marked where it is asked for.
TEST(explore, leaves_out_what_leaves_the_documentation_unless_it_is_asked_for) {
  const Outcome documented = explore({"--length", "5"}), any = explore({"--length", "5", "--any-script", "--json"});
  EXPECT_EQ(documented.code, tool::clean) << documented.out;
  EXPECT_FALSE(shows(documented, ", 0 leave the documentation")) << documented.out;
  EXPECT_EQ(any.code, tool::findings);
  std::size_t usage = 0;
  for (const json& record : explore_records(any)) {
    if (record["record"] == "engine") {
      EXPECT_EQ(record["undocumented"], 0);
      continue;
    }
    EXPECT_EQ(record["finding"]["blame"]["whose"], "usage") << record["shape"] << record["finding"];
    ++usage;
  }
  EXPECT_GT(usage, 20u);
  const Outcome marked = explore({"--engine", "zero2", "--length", "3", "--any-script"});
  EXPECT_TRUE(shows(marked, "\n  discarded-gradient    2 ranks: backward backward, usage (one-backward-a-step)\n")) << marked.out;
}

TEST(explore, without_a_file_takes_every_engine) {
  const Outcome outcome = explore({"--length", "2", "--json"});
  std::vector<std::string> engines;
  for (const json& record : explore_records(outcome))
    if (record["record"] == "engine") engines.push_back(record["engine"]);
  EXPECT_EQ(engines, (std::vector<std::string>{"zero0", "zero1", "zero1-offload", "bf16-optimizer", "zero2", "zero2-offload", "zero3", "zero3-offload"}));
}

// With mpirun: tests/tools/explore_mpi.
TEST(explore, with_mpi_alone_changes_nothing_and_without_it_says_what_is_missing) {
  const std::vector<std::string> options{"--engine", "zero0", "--alphabet", "backward,step", "--length", "3"};
  std::vector<std::string> shared = options;
  shared.push_back("--mpi");
  if (!tool::has_mpi()) return expect_complaint(explore(shared), tool::unavailable, "--mpi: this gradledger was built without MPI; expected");
  const Outcome one = explore(options), other = explore(shared);
  EXPECT_EQ(other.code, tool::clean) << other.err;
  EXPECT_EQ(lines_of(one.out).at(0), lines_of(other.out).at(0));
  const auto counts = [](const Outcome& o) { return o.out.substr(0, o.out.rfind('(')); };
  EXPECT_EQ(counts(one), counts(other));
}

TEST(explore, with_mpi_is_of_the_simulator) {
  expect_explore_refused({"--mpi", "--producer", "ddp", "--engine", "ddp"}, "--mpi excludes --producer");
  expect_explore_refused({joined, "--streams", "--mpi"}, "excludes");
}

TEST(explore, writes_its_records_beside_the_text) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "records.jsonl";
  const std::vector<std::string> options{"--engine", "zero0", "--alphabet", "backward,step", "--length", "3"};
  std::vector<std::string> recorded = options, printed = options;
  recorded.insert(recorded.end(), {"--records", file});
  printed.push_back("--json");
  const Outcome text = explore(recorded), records = explore(printed);
  EXPECT_EQ(text.code, tool::clean) << text.err;
  const auto without_seconds = [](const std::string& all) { return std::regex_replace(all, std::regex("\"seconds\":[^,}]*"), ""); };
  EXPECT_EQ(without_seconds(text_of(file)), without_seconds(records.out));
}

TEST(explore, says_where_it_is_not_complete) {
  const Outcome outcome = explore({"--engine", "zero1", "--length", "5", "--states-max", "10"});
  EXPECT_EQ(outcome.code, tool::findings);
  EXPECT_TRUE(shows(outcome, "zero1: NOT complete up to 5 events; ")) << outcome.out;
  // Nothing wrong was found on the way, and still it is no clean end.
  const Outcome clean_so_far = explore({"--engine", "zero0", "--alphabet", "backward,step", "--length", "5", "--states-max", "4", "--json"});
  EXPECT_EQ(clean_so_far.code, tool::findings);
  const auto records = explore_records(clean_so_far);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0]["complete"], false);
  EXPECT_LT(records[0]["depth"], 5);
}

TEST(explore, goes_as_far_as_its_length) {
  const auto depth = [](const char* length) { return explore_records(explore({"--engine", "zero3", "--alphabet", "backward,step", "--length", length, "--json"})).back(); };
  EXPECT_EQ(depth("3")["depth"], 3);
  EXPECT_EQ(depth("5")["depth"], 5);
  EXPECT_EQ(depth("5")["length"], 5);
  EXPECT_LT(depth("3")["states"], depth("5")["states"]);
}

TEST(explore, finds_the_same_with_several_jobs) {
  const auto with = [](const char* jobs) {
    auto records = explore_records(explore({"--engine", "zero2", "--length", "3", "--jobs", jobs, "--json"}));
    for (json& record : records) record.erase("seconds");
    return records;
  };
  EXPECT_EQ(with("1"), with("2"));
}

TEST(explore, prints_scenarios_that_a_gate_passes_and_the_counts_of_each_engine) {
  const TemporaryFolder folder;
  const Outcome outcome = explore({"--engine", "zero1", "--length", "3", "--json", "--world-size", "3", "--any-script"});
  EXPECT_EQ(outcome.code, tool::findings);
  const auto records = explore_records(outcome);
  ASSERT_GE(records.size(), 2u);
  for (std::size_t i = 0; i + 1 < records.size(); ++i) {
    EXPECT_EQ(records[i]["record"], "finding");
    EXPECT_EQ(records[i]["scenario"]["world_size"], 3);
    EXPECT_TRUE(records[i]["scenario"].contains(json::json_pointer(records[i]["finding"]["pointer"].get<std::string>()))) << records[i]["finding"];
    folder.write(std::to_string(i) + ".json", records[i]["scenario"].dump());
  }
  const Outcome gate = run({"gate", folder.path()});
  EXPECT_EQ(gate.code, tool::clean) << gate.out;
  const json& engine = records.back();
  EXPECT_EQ(engine["record"], "engine");
  EXPECT_EQ(engine["as_of"], "head");
  EXPECT_EQ(engine["complete"], true);
  EXPECT_GT(engine["compared"], 0);
  EXPECT_EQ(engine["transitions"].get<int>() + 1, engine["states"].get<int>() + engine["merged"].get<int>() + engine["wrong"].get<int>()) << engine;
}

TEST(explore, of_a_file_takes_its_world_and_not_its_script) {
  const Outcome outcome = explore({testing::leaking_scenario, "--length", "2", "--alphabet", "backward,step", "--any-script"});
  EXPECT_EQ(outcome.code, tool::findings) << outcome.err;
  EXPECT_TRUE(shows(outcome, "bf16-optimizer: complete up to 2 events; ")) << outcome.out;
  EXPECT_TRUE(shows(outcome, "\n  boundary-leak         4 ranks: step backward\n")) << outcome.out;
  const Outcome repaired = explore({testing::clean_scenario, "--length", "2", "--alphabet", "backward,step"});
  EXPECT_FALSE(shows(repaired, "boundary-leak")) << repaired.out;
  for (const auto& [option, value] : {std::pair{"--engine", "zero1"}, {"--switch", "offload_keep=gate_ga"}, {"--world-size", "2"}})
    expect_explore_refused({testing::clean_scenario, option, value}, option);
}

TEST(explore, of_an_event_of_one_rank_leaves_out_what_only_renames_ranks) {
  const auto on = [](const char* alphabet) { return explore_records(explore({"--engine", "zero0", "--length", "3", "--alphabet", alphabet, "--json"})).back(); };
  const json both = on("backward,step,boundary(T)@0,boundary(T)@1");
  EXPECT_EQ(both["symmetric"], true);
  EXPECT_GT(both["mirrored"], 0);
  EXPECT_EQ(on("backward,step")["mirrored"], 0);
}

TEST(alphabets, that_are_not_right_are_named) {
  const auto refused = [](const char* alphabet, const std::string& part) { expect_explore_refused({"--engine", "zero1", "--length", "2", "--alphabet", alphabet}, part); };
  refused("backward,stepp", "--alphabet: \"stepp\" is no event; expected one of backward, ");
  refused("backward,stepp", "did you mean \"step\"?");
  refused("backward,,step", "--alphabet: \"\" is no event");
  refused("", "--alphabet: is empty");
  refused("backward,step@2", "--alphabet: \"step@2\" names no rank; expected an event and @0 to @1");
  refused("backward,step@", "names no rank");
  refused("step", "--alphabet: reaches no gradient: nothing was compared; expected a backward and a step");
  std::string many = "backward";
  for (int i = 0; i < 64; ++i) many += ",step";
  refused(many.c_str(), "--alphabet: has 65 events; expected at most 64");
}

TEST(options_of_explore, that_are_not_right_are_named) {
  expect_explore_refused({"missing.json"}, "missing.json: cannot be read");
  expect_explore_refused({"--engine", "zero7"}, "--engine: \"zero7\" is no engine");
  expect_explore_refused({"--as-of", "1.0"}, "--as-of: unknown release");
  expect_explore_refused({"--switch", "x"}, "--switch: \"x\" sets nothing");
  for (const char* option : {"--length", "--states-max", "--time", "--jobs", "--world-size"})
    for (const char* value : {"0", "-1", "010", "1.5", "x"}) expect_explore_refused({option, value}, option);
  expect_explore_refused({"--length", "65"}, "--length: ");
  expect_explore_refused({"--producer", "gpu"}, "--producer");
  expect_explore_refused({"--memory-limit", "1gb"}, "--memory-limit requires FILE");
  expect_complaint(explore({testing::clean_scenario, "--memory-limit", "1kb"}), tool::unavailable, "expected at most --memory-limit, 1024 bytes");
}

TEST(explore_streams, of_a_script_without_a_race_has_one_outcome) {
  const Outcome outcome = explore({"--streams", joined});
  EXPECT_EQ(outcome.code, tool::clean) << outcome.err;
  const auto lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 3u) << outcome.out;
  EXPECT_EQ(lines[0], "# gradledger explore --seed 0 " + joined + " --streams");
  EXPECT_TRUE(lines[1].starts_with("streams-side-stream-joined-stage-1: complete: every order; ")) << lines[1];
  EXPECT_EQ(lines[2], "  1 outcome in memory, 1 in values; 0 races by happens-before: agree");
}

TEST(explore_streams, of_a_race_has_several_outcomes_and_names_it) {
  const Outcome outcome = explore({"--streams", racing, "--json"});
  EXPECT_EQ(outcome.code, tool::findings) << outcome.err;
  const auto records = explore_records(outcome);
  ASSERT_EQ(records.size(), 1u);
  const json& r = records[0];
  EXPECT_EQ(r["record"], "streams");
  EXPECT_EQ(r["complete"], true);
  EXPECT_EQ(r["agreement"], "agree");
  EXPECT_GT(r["outcomes"], 1);
  EXPECT_GT(r["outcomes_in_values"], 1);
  ASSERT_FALSE(r["races"].empty());
  EXPECT_EQ(r["races"][0]["buffer"], "w1.grad");
  ASSERT_GE(r["witnesses"].size(), 2u);
  EXPECT_NE(r["witnesses"][0]["values"], r["witnesses"][1]["values"]);
  EXPECT_TRUE(r["witnesses"][0]["order"].get<std::string>().starts_with("0:") || r["witnesses"][0]["order"].get<std::string>().starts_with("1:"));
  EXPECT_TRUE(shows(explore({"--streams", racing}), "\n  race: rank 0, w1.grad[0:20]: deposit and ")) << outcome.out;
}

TEST(explore_streams, says_where_it_is_not_complete) {
  const Outcome outcome = explore({"--streams", racing, "--states-max", "20"});
  EXPECT_EQ(outcome.code, tool::findings);
  EXPECT_TRUE(shows(outcome, "NOT complete")) << outcome.out;
}

TEST(explore_streams, is_of_a_file_and_takes_no_option_of_the_other_search) {
  expect_explore_refused({"--streams"}, "--streams requires FILE");
  expect_explore_refused({"--streams", "missing.json"}, "missing.json: cannot be read");
  for (const auto& [option, value] : {std::pair{"--alphabet", "step"}, {"--length", "3"}, {"--time", "3"}, {"--jobs", "2"}})
    expect_explore_refused({"--streams", joined, option, value}, option);
}

}  // namespace
}  // namespace gradledger::testing
