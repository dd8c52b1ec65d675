// A run in which nothing was judged is an error that says why, whatever the reason, unless the scenario means it.
#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

json loop_of_steps(const std::string& name, const std::string& script, std::uint32_t steps = 4) {
  return {{"name", name},
          {"world_size", 2},
          {"parameters", {{{"name", "w"}, {"numel", 64}}}},
          {"engine", {{"framework", "deepspeed"}, {"as_of", "0.18.9"}, {"config", {{"gradient_accumulation_steps", steps}, {"zero_optimization", {{"stage", 2}}}}}}},
          {"script", json::parse(script)}};
}

struct Vacuous {
  json scenario;
  std::string why;
};

std::vector<Vacuous> vacuous() {
  json unused = loop_of_steps("unused", R"([{"backward": {}}, {"step": {}}])", 1);
  unused["parameters"][0]["used_by"] = "micro_batch > 99";
  unused["engine"]["config"]["zero_optimization"]["stage"] = 0;  // at stages 1 and 2 such a backward raises
  json marked = loop_of_steps("marked", R"([{"backward": {}}, {"step": {}}])");
  marked["contract"] = {{"window", "marked"}};
  return {
      {marked, "1 step() call, none marked: write \"update\": true in each step where the loop means to update"},
      {loop_of_steps("counted", R"([{"backward": {"micro_batches": 4}}, {"step": {}}])"),
       "1 step() call, none at a boundary: gradient_accumulation_steps is 4 and one call in 4 updates; write a step after each backward, or set the boundary"},
      {loop_of_steps("boundary-false", R"([{"set_boundary": false}, {"backward": {"micro_batches": 4}}, {"step": {}}, {"step": {}}])"),
       "2 step() calls, none at a boundary: the boundary was set to false; set it to true before the last backward of a window"},
      {loop_of_steps("no-step", R"([{"backward": {"micro_batches": 4}}])"), "no step(): no window is closed; write a step after the last backward of a window"},
      {loop_of_steps("no-backward", R"([{"step": {}}])"), "no backward: there is no gradient to apply"},
      {unused, "no micro-batch of a window that a step closes has a gradient: none uses a parameter, or a zero_grad drops them all"},
      {loop_of_steps("backward-behind", R"([{"set_boundary": false}, {"step": {}}, {"backward": {}}, {"set_boundary": true}])"),
       "1 step() call, none at a boundary: gradient_accumulation_steps is 4 and one call in 4 updates; write a step after each backward, or set the boundary"},
  };
}

TEST(a_run_in_which_nothing_was_judged, ends_with_exit_code_2_and_says_why) {
  const TemporaryFolder folder;
  for (const Vacuous& v : vacuous()) {
    const std::string file = folder.write("a.json", v.scenario.dump());
    const Outcome replay = run({"replay", file});
    EXPECT_EQ(replay.code, tool::bad_input) << v.scenario["name"] << replay.out;
    EXPECT_NE(replay.out.find("nothing judged: " + v.why + "\n"), std::string::npos) << replay.out;
    EXPECT_NE(replay.err.find("nothing was judged: " + v.why), std::string::npos) << replay.err;
    EXPECT_EQ(replay.out.find("clean"), std::string::npos) << replay.out;
    const json report = testing::record_of(run({"replay", "--json", file}));
    EXPECT_EQ(report["verdict"], "nothing judged");
    EXPECT_EQ(report["coverage"]["nothing_judged"], v.why);
    EXPECT_EQ(report["coverage"]["windows_judged"], 0);
    const Outcome gate = run({"gate", file});
    EXPECT_EQ(gate.code, tool::bad_input) << gate.out;
    EXPECT_EQ(lines_of(gate.out).back(), "0 passed, 1 failed");
  }
}

TEST(a_run_in_which_nothing_was_judged, is_clean_where_the_scenario_allows_it) {
  const TemporaryFolder folder;
  for (Vacuous& v : vacuous()) {
    v.scenario["allow_open"] = true;
    const std::string file = folder.write("a.json", v.scenario.dump());
    EXPECT_EQ(run({"replay", file}).code, tool::clean) << v.scenario["name"];
    EXPECT_EQ(run({"gate", file}).code, tool::clean);
  }
}

TEST(a_report, says_whether_gradients_are_left_open_and_marks_the_steps_that_do_not_update) {
  const TemporaryFolder folder;
  const std::string script = R"([{"repeat": {"times": 4, "of": [{"backward": {}}, {"step": {}}]}}, {"backward": {}}, {"step": {}}])";
  const std::string file = folder.write("a.json", loop_of_steps("open", script).dump());
  const Outcome text = run({"replay", file});
  EXPECT_EQ(text.code, tool::clean) << text.out;
  for (const char* marked : {"step (call 1 of 4)", "step (call 2 of 4)", "step (call 3 of 4)"}) EXPECT_NE(text.out.find(marked), std::string::npos) << marked;
  EXPECT_EQ(text.out.find("call 4 of 4"), std::string::npos) << "the fourth updates";
  EXPECT_NE(text.out.find("open: the script ends with gradients that no step has applied"), std::string::npos);
  EXPECT_NE(text.out.find(", 1 of 1 windows that a step closes"), std::string::npos) << text.out;
  EXPECT_TRUE(testing::record_of(run({"replay", "--json", file}))["open"]);
  const std::string closed = folder.write("b.json", loop_of_steps("closed", R"([{"repeat": {"times": 4, "of": [{"backward": {}}, {"step": {}}]}}])").dump());
  EXPECT_FALSE(testing::record_of(run({"replay", "--json", closed}))["open"]);
}

}  // namespace
}  // namespace gradledger::testing
