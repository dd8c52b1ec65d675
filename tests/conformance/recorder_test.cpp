// tools/recorder without DeepSpeed: what it prints and writes, what it refuses, and that its gradients are those of the compact format.
#include <algorithm>
#include <set>
#include <sstream>

#include "tests/conformance/recordings.h"
#include "tests/tools/command.h"
#include "conformance/compact_format.h"

namespace gradledger::recorder {
namespace {

using conform::read_run;
using conform::RecordedMoment;
using conform::to_compact;
using nlohmann::json;
using testing::Outcome;
using testing::shell;
using testing::source_folder;

const std::filesystem::path recorder_folder = source_folder / "tools/recorder";

bool has_python() { return shell("command -v python3").code == 0; }
Outcome record(const std::string& words) { return shell((recorder_folder / "record").string() + " " + words); }

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(json::parse(line));
  return out;
}

class the_recorder : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_python()) GTEST_SKIP() << "no python3";
  }

  Outcome checked(const std::string& lines) const {
    folder_.write("runs.jsonl", lines);
    return record("check " + (folder_.path() / "runs.jsonl").string());
  }

  testing::TemporaryFolder folder_;
};

TEST_F(the_recorder, draws_the_same_runs_for_a_seed_and_others_for_another) {
  const Outcome first = record("draw --seed 1 --count 40"), again = record("draw --seed 1 --count 40"), other = record("draw --seed 2 --count 40");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out, again.out);
  EXPECT_NE(first.out, other.out);
  const std::vector<json> runs = lines_of(first.out);
  ASSERT_EQ(runs.size(), 40u);
  std::set<int> stages;
  for (const json& run : runs) {
    stages.insert(run["config"]["zero_optimization"]["stage"].get<int>());
    EXPECT_EQ(std::count_if(run["ops"].begin(), run["ops"].end(), [](const json& op) { return op[0] == "step"; }) > 0, true) << run["name"];
  }
  EXPECT_EQ(stages, (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(checked(first.out).out, "40 runs\n");
}

TEST_F(the_recorder, has_plans_that_it_reads_itself) {
  for (const auto& [plan, count] : {std::pair{"lifecycle", 44}, {"loss_scale", 27}, {"adam", 12}, {"first_step", 4}, {"own_adam", 7}}) {
    const Outcome planned = record(std::string("plan ") + plan);
    ASSERT_EQ(planned.code, 0) << planned.err;
    EXPECT_EQ(checked(planned.out).out, std::to_string(count) + " runs\n") << plan;
  }
}

TEST_F(the_recorder, refuses_bad_input_with_its_place_and_exit_code_2) {
  const std::string good = R"({"name": "a", "config": {}, "ops": [["fb", 0], ["step"]]})";
  EXPECT_EQ(checked(good).code, 0);
  for (const auto& [lines, part] : {std::pair<std::string, const char*>{"", "holds no run"},
                                    {"{", "runs.jsonl:1: is no JSON"},
                                    {good + "\n" + good, "runs.jsonl:2: a second run named 'a'"},
                                    {R"({"name": "a", "ops": [["step"]]})", "lacks \"config\""},
                                    {R"({"name": "a", "config": {}, "ops": [["jump"]]})", "ops/0: expected a list that begins with one of"},
                                    {R"({"name": "a", "config": {}, "ops": [["fb", 9]]})", "ops/0: expected a micro-batch from 0 to 3"},
                                    {R"({"name": "a", "config": {}, "ops": [["fb", 0, {"unknown": 1}]]})", "ops/0: expected an object with keys of"},
                                    {R"({"name": "a", "config": {}, "ops": [["step"]], "world": 99})", "world: expected a whole number from 1 to 16"},
                                    {R"({"name": "a", "config": {}, "ops": [["step"]], "speed": 1})", "unknown key speed"}}) {
    const Outcome outcome = checked(lines);
    EXPECT_EQ(outcome.code, 2) << lines;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err << "about: " << part;
  }
  EXPECT_EQ(record("plan nothing").code, 2);
  EXPECT_EQ(record("").code, 2);
  EXPECT_EQ(record("check /nowhere/at/all").code, 2);
}

TEST_F(the_recorder, says_where_there_is_no_deepspeed) {
  folder_.write("runs.jsonl", R"({"name": "a", "config": {}, "ops": [["step"]]})");
  const Outcome outcome = record("run " + (folder_.path() / "runs.jsonl").string() + " --output " + (folder_.path() / "out.jsonl").string() + " --deepspeed /nowhere");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("--deepspeed /nowhere: has no folder deepspeed"), std::string::npos) << outcome.err;
}

// What a host hands back becomes a line that the reader takes: made here from traces as ranks write them.
TEST_F(the_recorder, writes_lines_that_are_read_with_gradients_that_the_compact_format_knows) {
  folder_.write("line.py", "import json, sys\nsys.path.insert(0, '" + recorder_folder.string() + R"(')
from recorder import launch, runs
spec = runs.completed({'name': 'a', 'config': {'zero_optimization': {'stage': 3}}, 'sizes': [10, 3], 'n_mb': 2, 'ops': [['step']]}, 'here', 5)
trace = lambda rank: {'trace': [{'op': ['step'], 'calls': [['reduce', 4, 'float32', {'group': [0, 1], 'operator': 'sum', 'root': 1}]], 'snap': {},
                                 'partitions': [[rank] * 5, [rank] * 2], 'global_grad_norm': 'inf', 'loss_scale': 8.0, 'overflow': True}]}
outcome = {'patch': 'none', 'unfinished': '', 'ranks': [trace(0), trace(1)]}
print(json.dumps(launch.assembled({'spec': spec, 'grads': runs.gradients(spec)}, outcome, {'deepspeed': '0.17.5', 'torch': '2', 'python': '3'}, None)))
)");
  const Outcome outcome = shell("python3 " + (folder_.path() / "line.py").string());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto run = read_run(json::parse(outcome.out));
  ASSERT_TRUE(run) << run.error().text();
  EXPECT_EQ(run->version, "0.17.5");
  const RecordedMoment& moment = run->ranks[1][0];
  EXPECT_EQ(moment.parameters, (std::vector<std::vector<double>>{{0, 0, 0, 0, 0, 1, 1, 1, 1, 1}, {0, 0, 1}}));
  EXPECT_EQ(moment.collectives->front().root, 1u);
  EXPECT_EQ(moment.loss_scale, 8);
  EXPECT_EQ(moment.overflow, true);
  EXPECT_EQ(to_compact(*run)["gradients"], "one-hot codes");
}

}  // namespace
}  // namespace gradledger::recorder
