// Recorded runs of Megatron-FSDP, and that their comparison sees a change in any of its numbers.
#include "tests/conformance/torch_runs.h"

namespace gradledger::conform::torch {
namespace {

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

std::string fsdp_outcome(const char* config, const char* operations) { return outcome_of(line_of("megatron-fsdp", "0.6.1", config, operations)); }

TEST(recorded_megatron_fsdp_runs, that_have_no_scenario_say_why) {
  EXPECT_EQ(fsdp_outcome("{}", R"([["launch"]])"), "inexpressible: the operation launch");
  EXPECT_EQ(fsdp_outcome("{}", R"([["set", "set_requires_gradient_sync", true]])"), "inexpressible: the operation set");
  EXPECT_NE(fsdp_outcome(R"({"zero_dp_strategy": "all"})", "[]").find("configuration: "), std::string::npos);
  EXPECT_NE(fsdp_outcome("{}", R"([["set", "set_model_auto_sync", 3]])").find("/spec/ops/0/2: is 3"), std::string::npos);
}

}  // namespace
}  // namespace gradledger::conform::torch
