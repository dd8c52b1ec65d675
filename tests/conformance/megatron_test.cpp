// Recorded runs of Megatron-Core, and that their comparison sees a change in any of its numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "conformance/megatron/compare.h"
#include "tests/conformance/recorded_runs.h"

namespace gradledger::conform::megatron {
namespace {

using nlohmann::json;
using MegatronRun = Run;  // tests have a function of that name

std::vector<MegatronRun> recorded() { return runs_of_file<MegatronRun>("megatron_data/megatron.jsonl.gz", is_megatron_run, read_megatron_run); }

TEST(recorded_megatron_runs, agree_with_their_replay_in_every_number) {
  const std::vector<MegatronRun> runs = recorded();
  std::set<std::string> versions;
  for (const MegatronRun& run : runs) versions.insert(run.version);
  EXPECT_EQ(versions.size(), 7u);
  EXPECT_EQ(agreement_of(runs), (RunTotals{645, 1173125, 6944}));
}

// 1F1B and interleaved schedules of two stages, of two data-parallel ranks each.
TEST(recorded_megatron_pipelines, agree_with_their_replay_in_every_number) {
  const auto runs = runs_of_file<MegatronRun>("megatron_data/pipelines.jsonl.gz", is_megatron_run, read_megatron_run);
  EXPECT_EQ(agreement_of(runs), (RunTotals{120, 135984, 2592}));
}

// From 0.16 on a stage that begins its reduction itself reduces again in finalize_model_grads, with several instances of the distributed optimizer.
TEST(recorded_megatron_pipelines, reduce_twice_since_0_16_where_a_stage_begins_with_several_instances) {
  std::map<std::string, std::size_t> calls;  // of the last rank in the first window
  for (const MegatronRun& run : runs_of_file<MegatronRun>("megatron_data/pipelines.jsonl.gz", is_megatron_run, read_megatron_run))
    if (run.name == "m12_1f1b_instances_aligned") calls[run.version] = run.ranks.back().moments[1].collectives.size();
  EXPECT_EQ(calls["core_v0.15.3"], 2u);
  EXPECT_EQ(calls["core_v0.16.1"], 4u);
  EXPECT_EQ(calls["core_v0.19.0"], 4u);
}

// Whether the comparison notices that one number of some moment is another; `change` says whether it found one to change.
template <class Change>
void expect_noticed(const std::vector<MegatronRun>& runs, Change&& change) {
  std::uint64_t changed = 0;
  for (MegatronRun run : runs) {
    bool done = false;
    for (RankRun& rank : run.ranks)
      for (Moment& moment : rank.moments)
        if (!done && (done = change(moment))) break;
    if (!done) continue;
    ++changed;
    EXPECT_EQ(judge(run)->outcome, Outcome::differs) << run.name;
  }
  EXPECT_GT(changed, 0u);
}

TEST(recorded_megatron_runs, differ_where_one_number_is_another) {
  std::vector<MegatronRun> runs = recorded();
  std::erase_if(runs, [n = 0u](const MegatronRun&) mutable { return n++ % 16 != 0; });
  expect_noticed(runs, [](Moment& m) { return !m.buffers.empty() && nudge(m.buffers.rbegin()->second.values.back()); });
  expect_noticed(runs, [](Moment& m) { return !m.weights.empty() && nudge(m.weights.back().back()); });
  expect_noticed(runs, [](Moment& m) { return m.norm && nudge(*m.norm); });
  expect_noticed(runs, [](Moment& m) { return m.zeros && nudge(*m.zeros); });
  expect_noticed(runs, [](Moment& m) { return m.loss_scale && nudge(*m.loss_scale); });
  expect_noticed(runs, [](Moment& m) { return !m.padding_nonzero.empty() && ++m.padding_nonzero.begin()->second > 0; });
  expect_noticed(runs, [](Moment& m) { return !m.collectives.empty() && ++m.collectives.back().numel > 0; });
  expect_noticed(runs, [](Moment& m) {
    if (m.collectives.empty()) return false;
    m.collectives.pop_back();
    return true;
  });
  expect_noticed(runs, [](Moment& m) {
    if (m.groups.empty()) return false;
    ++m.groups.begin()->second.ready["a"];
    return true;
  });
  expect_noticed(runs, [](Moment& m) {
    if (m.groups.empty() || !m.groups.begin()->second.grad_reduce_handle) return false;
    m.groups.begin()->second.grad_reduce_handle = !*m.groups.begin()->second.grad_reduce_handle;
    return true;
  });
  expect_noticed(runs, [](Moment& m) {
    if (!m.updated) return false;
    m.updated = !*m.updated;
    return true;
  });
  expect_noticed(runs, [](Moment& m) {
    m.error += "?";
    return true;
  });
}

TEST(recorded_megatron_runs, differ_where_a_buffer_is_laid_out_otherwise) {
  MegatronRun run = recorded().front();
  ++run.ranks[0].layout[0].places.begin()->second[0];
  EXPECT_EQ(judge(run)->outcome, Outcome::differs);
}

json small_line() {
  return json::parse(R"({"name": "a", "version": "core_v0.16.1", "framework": "megatron-core", "spec": {"world": 1, "n_mb": 1, "dtype": "fp32",
      "params": [{"name": "a", "numel": 2}], "config": {"ddp": {}, "optimizer": {}, "model": {}}, "ops": [["fb", 0]]},
      "grads": {"rank0": {"mb0": [[1, 2]]}}, "ranks": [{"trace": [{"op": ["fb", 0], "snap": {}, "calls": []}]}]})");
}

// What is said of a line; nothing of one that agrees.
std::string verdict_of(const json& line) {
  const auto run = read_megatron_run(line);
  if (!run) return run.error().text();
  const auto comparison = judge(*run);
  return comparison ? comparison->why : comparison.error().text();
}

// What is said where one value of the small line is another.
std::string malformed(const char* pointer, const json& value) {
  json line = small_line();
  line[json::json_pointer(pointer)] = value;
  return verdict_of(line);
}

TEST(recorded_megatron_runs, that_are_malformed_are_named_by_their_place) {
  const json line = small_line();
  EXPECT_TRUE(read_megatron_run(line).ok());
  const auto place = [&](const char* pointer, const json& value) {
    json changed = line;
    changed[json::json_pointer(pointer)] = value;
    const auto run = read_megatron_run(changed);
    return run ? std::string("nothing") : run.error().where;
  };
  EXPECT_EQ(place("/spec/world", 0), "/spec/world");
  EXPECT_EQ(place("/spec/params", json::array()), "/spec/params");
  EXPECT_EQ(place("/spec/params/0/numel", "x"), "/spec/params/0/numel");
  EXPECT_EQ(place("/grads/rank0/mb0", json::parse("[[1]]")), "/grads/rank0/mb0/0");
  EXPECT_EQ(place("/ranks/0/trace", json::parse(R"([{"op": ["step"]}])")), "/ranks/0/trace/0/op");
  EXPECT_EQ(place("/spec/plant", json::parse(R"({"rank": 0, "mb": 0, "param": "b", "value": 1})")), "/spec/plant/param");
  EXPECT_EQ(place("/spec/plant", json::parse(R"({"rank": 0, "mb": 1, "param": "a", "value": 1})")), "/spec/plant/mb");
  EXPECT_EQ(place("/spec/plant", json::parse(R"({"rank": 1e300, "mb": 0, "param": "a", "value": 1})")), "/spec/plant/rank");
  EXPECT_EQ(place("/spec/plant", json::parse(R"({"rank": -1, "mb": 0, "param": "a", "value": 1})")), "nothing");
}

TEST(recorded_megatron_runs, that_are_shorter_than_their_script_are_malformed_unless_they_raised) {
  EXPECT_EQ(malformed("/ranks/0/trace", json::array()), "/ranks/0/trace: ends behind 0 of 1 operations; expected all of them, or an error in the last");
  EXPECT_EQ(malformed("/spec/ops", json::parse(R"([["fb", 0], ["step"]])")), "/ranks/0/trace: ends behind 1 of 2 operations; expected all of them, or an error in the last");
  json raised = json::parse(R"([{"op": ["fb", 0], "snap": {}, "calls": [], "error": "RuntimeError: x"}])");
  json line = small_line();
  line["spec"]["ops"].push_back({"step"});
  line["ranks"][0]["trace"] = raised;
  EXPECT_TRUE(read_megatron_run(line).ok());
}

TEST(recorded_megatron_runs, that_are_malformed_within_an_operation_or_the_configuration_say_so) {
  const auto operation = [](const char* text) {
    json line = small_line();
    line["spec"]["ops"][0] = line["ranks"][0]["trace"][0]["op"] = json::parse(text);
    return verdict_of(line);
  };
  EXPECT_EQ(operation(R"(["schedule", []])"), "/spec/ops/0/1: is empty; expected at least one micro-batch");
  EXPECT_EQ(operation(R"(["finalize", []])"), "/spec/ops/0/1: has not one count for each rank");
  EXPECT_EQ(malformed("/spec/config/ddp", nullptr), "/spec/config/ddp: is null; expected an object");
  EXPECT_EQ(malformed("/spec/config/ddp", json::array()), "/spec/config/ddp: is an array of 0; expected an object");
  EXPECT_EQ(malformed("/spec/config/optimizer", 3), "/spec/config/optimizer: is 3; expected an object");
}

TEST(recorded_megatron_runs, with_instances_that_do_not_divide_the_ranks_have_no_scenario) {
  const std::string why = malformed("/spec/config/ddp", json::parse(R"({"use_distributed_optimizer": true, "num_distributed_optimizer_instances": 3})"));
  EXPECT_NE(why.find("does not divide the 1 data-parallel ranks of rank 0"), std::string::npos) << why;
}

TEST(recorded_megatron_runs, that_show_nothing_do_not_agree) {
  json line = small_line();
  line["spec"]["ops"] = line["ranks"][0]["trace"] = json::array();
  const std::string verdict = verdict_of(line);
  EXPECT_FALSE(verdict.empty());
}

TEST(recorded_megatron_runs, of_which_one_rank_is_not_refused_differ) {
  std::vector<MegatronRun> refused = recorded();
  std::erase_if(refused, [](const MegatronRun& run) { return run.world < 2 || run.ranks.front().refusal.empty(); });
  ASSERT_FALSE(refused.empty());
  MegatronRun run = refused.front();
  ASSERT_EQ(judge(run)->outcome, Outcome::agrees);
  run.ranks.back().refusal = "AssertionError: something else";
  EXPECT_EQ(judge(run)->outcome, Outcome::differs);
  run.ranks.back().refusal = run.ranks.front().refusal.substr(run.ranks.front().refusal.find(": ") + 2);
  EXPECT_EQ(judge(run)->outcome, Outcome::differs) << "a part of the words is not the words";
  run.ranks.back().refusal.clear();
  EXPECT_EQ(judge(run)->outcome, Outcome::differs);
}

// An operation that counts, and one behind it: each has the zeros of its own event.
TEST(recorded_megatron_runs, count_the_zeros_of_each_step_by_itself) {
  std::uint64_t changed = 0;
  for (MegatronRun run : recorded()) {
    std::vector<Moment*> counting;
    for (Moment& moment : run.ranks[0].moments)
      if (moment.zeros) counting.push_back(&moment);
    if (counting.size() < 2) continue;
    *counting.front()->zeros += 1;
    ++changed;
    EXPECT_EQ(judge(run)->outcome, Outcome::differs) << run.name;
  }
  EXPECT_GT(changed, 0u);
}

}  // namespace
}  // namespace gradledger::conform::megatron
