// Recorded training loops agree with what `loops` expands them into, and their comparison sees a change in any of their numbers.
#include <gtest/gtest.h>

#include <set>

#include "conformance/loops/compare.h"
#include "tests/conformance/recorded_runs.h"

namespace gradledger::conform::loop_runs {
namespace {

using nlohmann::json;
using LoopRun = Run;  // tests have a function of that name

std::vector<LoopRun> recorded_recipes() { return runs_of_file<LoopRun>("loops_data/recipes.jsonl.gz", is_loop_run, read_loop_run); }

std::vector<LoopRun> recorded() { return runs_of_file<LoopRun>("loops_data/loops.jsonl.gz", is_loop_run, read_loop_run); }

const LoopRun& run_named(const std::vector<LoopRun>& runs, const std::string& name, const std::string& version) {
  const auto found = std::find_if(runs.begin(), runs.end(), [&](const LoopRun& run) { return run.name == name && run.version == version; });
  EXPECT_NE(found, runs.end()) << name;
  return found == runs.end() ? runs.front() : *found;
}

TEST(recorded_loops, agree_with_their_expansion_in_every_number) {
  const std::vector<LoopRun> runs = recorded();
  std::set<std::string> versions;
  for (const LoopRun& run : runs) versions.insert(run.version);
  EXPECT_EQ(versions.size(), 8u);
  EXPECT_EQ(agreement_of(runs), (RunTotals{75, 10287, 0}));
}

TEST(recorded_loops, of_recipes_agree_with_their_expansion_in_every_number) {
  const std::vector<LoopRun> runs = recorded_recipes();
  std::set<std::string> versions, frameworks;
  for (const LoopRun& run : runs) {
    versions.insert(run.version);
    frameworks.insert(run.engine["framework"].get<std::string>());
  }
  EXPECT_EQ(versions,
            (std::set<std::string>{"nemo-rl 2026.8", "nemo-toolkit 2.5.0", "open-instruct 2025.11", "open-instruct 2025.8", "open-instruct 2026.1", "open-instruct 2026.8"}));
  EXPECT_EQ(frameworks, (std::set<std::string>{"ddp", "deepspeed", "fsdp2", "megatron"}));
  EXPECT_EQ(agreement_of(runs), (RunTotals{48, 4179, 0}));
}

// Whether the comparison notices that one number of some rank is another; `change` says whether it found one to change.
template <class Change>
void expect_noticed(const std::vector<LoopRun>& runs, std::uint64_t least, Change&& change) {
  std::uint64_t changed = 0;
  for (LoopRun run : runs) {
    if (!change(run.ranks.back())) continue;
    ++changed;
    EXPECT_EQ(judge(run)->outcome, Outcome::differs) << run.name << " at " << run.version;
  }
  EXPECT_GE(changed, least);
}

// By more than the roundings of a sum over a few tokens, and by less than one token of the longest sample.
double other(double value) { return value == 0 ? std::numeric_limits<float>::min() : value + value / 4096; }

TEST(recorded_loops, differ_where_one_number_is_another) {
  const std::vector<LoopRun> runs = recorded();
  expect_noticed(runs, 70, [](RankRun& rank) {
    if (rank.steps.empty()) return false;
    double& last = rank.steps.back()[3];
    last = other(last);
    return true;
  });
  expect_noticed(runs, 70, [](RankRun& rank) {
    if (rank.per_token.empty()) return false;
    rank.per_token.back()[3] += 1.0 / (1 << 16);
    return true;
  });
  expect_noticed(runs, 60, [](RankRun& rank) {
    if (rank.micro_batches.empty()) return false;
    rank.micro_batches.back().syncs ^= true;
    return true;
  });
  expect_noticed(runs, 70, [](RankRun& rank) {
    if (rank.micro_batches.empty() && rank.samples.empty()) return false;
    std::uint32_t& sample = rank.micro_batches.empty() ? rank.samples.back() : rank.micro_batches.back().sample;
    sample ^= 1;
    return true;
  });
  expect_noticed(runs, 30, [](RankRun& rank) { return !rank.micro_batches.empty() && rank.micro_batches.back().items && nudge(*rank.micro_batches.back().items); });
  expect_noticed(runs, 10, [](RankRun& rank) {
    if (rank.micro_batches.empty() || !rank.micro_batches.front().gradient) return false;
    double& first = rank.micro_batches.front().gradient->front();
    first = other(first);
    return true;
  });
  expect_noticed(runs, 10, [](RankRun& rank) {
    if (!rank.tells_left) return false;
    if (rank.left) rank.left.reset();
    else rank.left.emplace(rank.steps.front().size());
    return true;
  });
  expect_noticed(runs, 70, [](RankRun& rank) {
    if (rank.steps.empty()) return false;
    rank.steps.pop_back();
    rank.per_token.pop_back();
    return true;
  });
  expect_noticed(runs, 75, [](RankRun& rank) {
    rank.error += "?";
    return true;
  });
}

TEST(recorded_loops, of_recipes_differ_where_one_number_or_one_option_is_another) {
  const std::vector<LoopRun> runs = recorded_recipes();
  expect_noticed(runs, 48, [](RankRun& rank) {
    double& last = *std::find_if(rank.steps.back().rbegin(), rank.steps.back().rend(), [](double applied) { return applied != 0; });
    last = other(last);
    return true;
  });
  expect_noticed(runs, 48, [](RankRun& rank) {
    rank.micro_batches.back().syncs ^= true;
    return true;
  });
  const auto outcome = [&](const char* name, const char* version, const auto& change) {
    LoopRun run = run_named(runs, name, version);
    change(run);
    return judge(run)->outcome;
  };
  const auto taken_as = [](const char* release) { return [release](LoopRun& run) { run.versions["open-instruct"] = release; }; };
  EXPECT_EQ(outcome("grpo_fast_z3_gas2", "open-instruct 2025.11", taken_as("2026.1")), Outcome::differs) << "open-instruct#1161";
  EXPECT_EQ(outcome("grpo_fast_z2_gas2", "open-instruct 2026.1", taken_as("2026.8")), Outcome::differs) << "open-instruct#1498";
  EXPECT_EQ(outcome("grpo_fast_z2_gas2", "open-instruct 2026.1", [](LoopRun& run) { run.engine["config"]["zero_optimization"]["stage"] = 3; }), Outcome::differs);
  EXPECT_EQ(outcome("finetune_w2_sum", "open-instruct 2025.8", [](LoopRun& run) { run.sums = false; }), Outcome::differs);
  EXPECT_EQ(outcome("finetune_w2_sum", "open-instruct 2025.8", taken_as("2026.8")), Outcome::differs) << "open-instruct#1024";
  EXPECT_EQ(outcome("nemo_gas2_per_token", "nemo-toolkit 2.5.0", [](LoopRun& run) { run.engine["config"]["model"] = json::object(); }), Outcome::differs);
}

// Each of these releases weighs, steps or counts otherwise than the one before it.
TEST(recorded_loops, differ_from_the_loop_of_another_release) {
  const std::vector<LoopRun> runs = recorded();
  struct Taken {
    const char *run, *ran, *taken;
  };
  for (const Taken& t : {Taken{"trainer_w2_gas2_accepts0_avgtok0", "4.45.2", "4.46.0"},
                         {"trainer_w2_gas2_accepts1_avgtok1", "4.46.0", "4.47.1"},
                         {"trainer_w2_gas2_clf", "4.47.1", "4.51.3"},
                         {"trainer_w2_gas2_accepts0_avgtok0", "4.47.1", "4.51.3"},
                         {"trainer_w2_gas2_two_epochs", "4.46.0", "4.47.1"},
                         {"trainer_w2_gas2_two_epochs", "4.51.3", "4.54.1"},
                         {"trainer_w2_gas2_two_epochs", "4.54.1", "5.23.0"}}) {
    LoopRun run = run_named(runs, t.run, std::string("transformers ") + t.ran);
    run.versions["transformers"] = t.taken;
    EXPECT_EQ(judge(run)->outcome, Outcome::differs) << t.run << ": " << t.ran << " taken as " << t.taken;
  }
}

TEST(recorded_loops, differ_where_an_option_is_another) {
  const std::vector<LoopRun> runs = recorded();
  const auto outcome = [&](const char* name, const char* version, const auto& change) {
    LoopRun run = run_named(runs, name, version);
    change(run);
    return judge(run)->outcome;
  };
  EXPECT_EQ(outcome("accelerate_w2_gas2_nosyncdl", "accelerate 1.15.0", [](LoopRun& run) { run.plugin = json::object(); }), Outcome::differs);
  EXPECT_EQ(outcome("accelerate_w2_gas2_synceach", "accelerate 1.15.0", [](LoopRun& run) { run.plugin = json::object(); }), Outcome::differs);
  EXPECT_EQ(outcome("accelerate_w2_gas2_break", "accelerate 1.15.0", [](LoopRun& run) { run.stop_after.reset(); }), Outcome::differs);
  EXPECT_EQ(outcome("lightning_w1_manual_divided", "lightning 2.6.6", [](LoopRun& run) { run.divides = false; }), Outcome::differs);
  EXPECT_EQ(outcome("lightning_w2_manual", "lightning 2.6.6", [](LoopRun& run) { run.manual = false; }), Outcome::differs);
}

json small_line() {
  return json::parse(R"({"name": "a", "loop": "accelerate", "world": 1, "gas": 2, "tok": [2, 1], "versions": {"accelerate": "1.15.0"},
      "ranks": [{"steps": [[0.5, 0.5]], "weights_per_token": [[0.25, 0.5]], "sync": [[false, 0, [0.5, 0], 0], [true, 1, [0.5, 0.5], 0]], "left_in_grad": null}]})");
}

// What is said where one value of the small line is another; nothing where it agrees.
std::string said(const char* pointer, const json& value) {
  json line = small_line();
  line[json::json_pointer(pointer)] = value;
  const auto run = read_loop_run(line);
  if (!run) return run.error().text();
  const auto comparison = judge(*run);
  return comparison ? comparison->why : comparison.error().text();
}

TEST(recorded_loops, that_are_malformed_are_named_by_their_place) {
  EXPECT_EQ(said("/name", "b"), "");
  EXPECT_EQ(said("/world", 0).substr(0, 6), "/world");
  EXPECT_EQ(said("/tok", json::array()), "/tok: is empty; expected the tokens of at least one sample");
  EXPECT_EQ(said("/tok", std::vector<unsigned>(1025, 1)), "/tok: has 1025 samples, in 1 epochs; expected at most 1024 together");
  EXPECT_EQ(said("/epochs", 513u), "/tok: has 2 samples, in 513 epochs; expected at most 1024 together");
  EXPECT_EQ(said("/ranks", json::array()), "/ranks: has not one entry for each rank");
  EXPECT_EQ(said("/ranks/0/steps/0", {1}).substr(0, 16), "/ranks/0/steps/0");
  EXPECT_EQ(said("/ranks/0/steps", json::array()), "/ranks/0: has not one entry of weights_per_token for each of steps");
  EXPECT_EQ(said("/ranks/0/sync/0/1", 2).substr(0, 17), "/ranks/0/sync/0/1");
}

TEST(recorded_loops, that_cannot_be_expressed_say_why) {
  EXPECT_EQ(said("/loop", "verl"), "the loop \"verl\"; there are trainer, accelerate, lightning, open-instruct, open-instruct-finetune, nemo-rl, nemo");
  EXPECT_EQ(said("/engine", {{"framework", "fsdp2"}, {"config", 1}}).substr(0, 14), "/engine/config");
  EXPECT_EQ(said("/engine", {{"framework", "megatron"}}), "accelerate on the framework megatron");
  EXPECT_EQ(said("/loop", "nemo-rl"), "nemo-rl on the framework ddp");
  EXPECT_EQ(said("/versions", json::object()), "a run that does not say its release of accelerate");
  EXPECT_EQ(said("/versions/accelerate", "0.20.0"), "accelerate 0.20.0, which is older than any that was read");
  EXPECT_EQ(said("/plugin", {{"num_steps", 3}}), "num_steps of 3");
  EXPECT_EQ(said("/plugin", {{"sync_each_batch", 1}}), "sync_each_batch that is neither true nor false");
  EXPECT_EQ(said("/args", {{"max_steps", 1}}), "arguments of a Trainer, in another loop");
}

}  // namespace
}  // namespace gradledger::conform::loop_runs
