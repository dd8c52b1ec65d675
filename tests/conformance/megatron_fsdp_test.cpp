// Recorded runs of Megatron-FSDP, and that their comparison sees a change in any of its numbers.
#include "tests/conformance/torch_runs.h"

namespace gradledger::conform::torch {
namespace {

using nlohmann::json;

TEST(recorded_megatron_fsdp_runs, agree_with_their_replay_in_every_number) { EXPECT_EQ(agreement_of(recorded_runs("megatron_fsdp.jsonl.gz")), (RunTotals{404, 486559, 13744})); }

TEST(recorded_megatron_fsdp_runs, differ_where_one_number_is_another) {
  const std::vector<TorchRun> runs = some_of(recorded_runs("megatron_fsdp.jsonl.gz"));
  expect_noticed(runs, [](Moment& m) { return !m.buffers.empty() && nudge(m.buffers.rbegin()->second.values); });
  expect_noticed(runs, [](Moment& m) { return !m.weights.empty() && nudge(m.weights.back().values); });
  expect_noticed(runs, [](Moment& m) { return !m.weights.empty() && ++m.weights.back().offset > 0; });
  expect_noticed(runs, [](Moment& m) { return !m.transfers.empty() && nudge(m.transfers.rbegin()->second.in); });
  expect_noticed(runs, [](Moment& m) { return !m.transfers.empty() && nudge(m.transfers.rbegin()->second.out); });
  expect_noticed(runs, [](Moment& m) { return !m.collectives.empty() && ++m.collectives.back().numel > 0; });
}

// What a release did is what the next one does not: each switch decides in some recording.
TEST(recorded_megatron_fsdp_runs, are_told_apart_by_release) {
  std::uint64_t told = 0;
  for (TorchRun run : recorded_runs("megatron_fsdp.jsonl.gz")) {
    if (run.version == "0.6.1" || !run.refusal.empty()) continue;
    run.version = "0.6.1";
    told += judge(run)->outcome == Outcome::differs;
  }
  EXPECT_GT(told, 20u);
}

std::string outcome(const char* config, const char* operations) {
  json line = json::parse(R"({"name": "a", "version": "0.6.1", "framework": "megatron-fsdp", "spec": {"world": 1, "root": [2], "units": [[1], [1]], "sizes": [2, 1, 1], "n_mb": 1,
      "dtype": "float32"}, "grads": {"rank0": {"mb0": [[1, 2], [3], [4]]}}, "ranks": [{"trace": []}]})");
  line["spec"]["config"] = json::parse(config);
  line["spec"]["ops"] = json::parse(operations);
  for (const json& operation : line["spec"]["ops"]) line["ranks"][0]["trace"].push_back({{"op", operation}, {"snap", json::object()}});
  const auto run = read_torch_run(line);
  if (!run) return run.error().text();
  const auto comparison = judge(*run);
  if (!comparison) return comparison.error().text();
  return comparison->outcome == Outcome::inexpressible ? "inexpressible: " + comparison->why : "";
}

TEST(recorded_megatron_fsdp_runs, that_have_no_scenario_say_why) {
  EXPECT_EQ(outcome("{}", R"([["launch"]])"), "inexpressible: the operation launch");
  EXPECT_EQ(outcome("{}", R"([["set", "set_requires_gradient_sync", true]])"), "inexpressible: the operation set");
  EXPECT_NE(outcome(R"({"zero_dp_strategy": "all"})", "[]").find("configuration: "), std::string::npos);
  EXPECT_NE(outcome("{}", R"([["set", "set_model_auto_sync", 3]])").find("/spec/ops/0/2: is 3"), std::string::npos);
}

}  // namespace
}  // namespace gradledger::conform::torch
