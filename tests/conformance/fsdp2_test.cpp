// Recorded runs of PyTorch's fully_shard, and that their comparison sees a change in any of its numbers.
#include "tests/conformance/torch_runs.h"

namespace gradledger::conform::torch {
namespace {

using nlohmann::json;

TEST(recorded_fsdp2_runs, agree_with_their_replay_in_every_number) { EXPECT_EQ(agreement_of(recorded_runs("fsdp2.jsonl.gz")), (RunTotals{249, 399230, 11923})); }

TEST(recorded_fsdp2_runs, differ_where_one_number_is_another) { expect_every_number_counts(some_of(recorded_runs("fsdp2.jsonl.gz"))); }

TEST(recorded_fsdp2_runs, differ_where_a_shard_begins_elsewhere) {
  const std::vector<TorchRun> runs = some_of(recorded_runs("fsdp2.jsonl.gz"));
  expect_noticed(runs, [](Moment& m) { return !m.buffers.empty() && !m.buffers.rbegin()->second.values.empty() && ++m.buffers.rbegin()->second.offset > 0; });
  expect_noticed(runs, [](Moment& m) { return !m.weights.empty() && !m.weights.back().values.empty() && ++m.weights.back().offset > 0; });
}

json line(const char* config, const char* operations) {
  json out = json::parse(R"({"name": "a", "version": "2", "framework": "fsdp2", "spec": {"world": 1, "root": [2], "units": [[1], [1]], "sizes": [2, 1, 1], "n_mb": 1,
      "dtype": "float32"}, "grads": {"rank0": {"mb0": [[1, 2], [3], [4]]}}, "ranks": [{"trace": []}]})");
  out["spec"]["config"] = json::parse(config);
  out["spec"]["ops"] = json::parse(operations);
  for (const json& operation : out["spec"]["ops"]) out["ranks"][0]["trace"].push_back({{"op", operation}, {"snap", json::object()}});
  return out;
}

std::string outcome(const char* config, const char* operations) {
  const auto run = read_torch_run(line(config, operations));
  if (!run) return run.error().text();
  const auto comparison = judge(*run);
  if (!comparison) return comparison.error().text();
  return comparison->outcome == Outcome::inexpressible ? "inexpressible: " + comparison->why : "";
}

TEST(recorded_fsdp2_runs, that_have_no_scenario_say_why) {
  EXPECT_EQ(outcome("{}", R"([["set", "set_gradients_free", true]])"), "inexpressible: the method set_gradients_free");
  EXPECT_EQ(outcome(R"({"unwrapped": [1]})", R"([["call", "reshard", {"module": "unit1"}]])"), "inexpressible: a method of unit1, which is no module of fully_shard");
  EXPECT_EQ(outcome("{}", R"([["fb", 0, {"use": [0], "call_unused": true}], ["fb", 0, {"use": [1]}]])"),
            "inexpressible: units that are called without use in some forwards, and left out in others");
  EXPECT_EQ(outcome("{}", R"([["launch"]])"), "inexpressible: the operation launch");
  EXPECT_NE(outcome(R"({"mp_policy": {"cast_forward_inputs": true}})", "[]").find("configuration: "), std::string::npos);
  EXPECT_NE(outcome(R"({"mesh": [1, 3]})", "[]").find("/spec/config/mesh"), std::string::npos);
  EXPECT_EQ(outcome(R"({"groups": [[1, 0]]})", "[]"), "inexpressible: a group of units that do not follow each other");
}

TEST(recorded_fsdp2_runs, that_are_malformed_are_named_by_their_place) {
  EXPECT_NE(outcome("{}", "[[]]").find("/spec/ops/0: "), std::string::npos);
  EXPECT_NE(outcome("{}", "[3]").find("/spec/ops/0: "), std::string::npos);
  EXPECT_EQ(outcome("{}", R"([["fb", 0, {"use": [0], "call_unused": 1}]])"), "/spec/ops/0/2/call_unused: is 1; expected true or false");
  EXPECT_NE(outcome("{}", R"([["call", "reshard", {"module": 3}]])").find("/spec/ops/0/2/module: is 3; expected a text"), std::string::npos);
  EXPECT_NE(outcome("{}", R"([["set", "set_requires_gradient_sync", true, {"recurse": 3}]])").find("/spec/ops/0/3/recurse: is 3"), std::string::npos);
  EXPECT_NE(outcome("{}", R"([["zero_grad", {"set_to_none": 3}]])").find("/spec/ops/0/1/set_to_none: is 3"), std::string::npos);
  EXPECT_EQ(outcome("{}", R"([["fsum", []]])"), "/spec/ops/0/1: is empty; expected at least one micro-batch");
}

}  // namespace
}  // namespace gradledger::conform::torch
