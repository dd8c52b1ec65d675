// Recorded runs of the second version of Megatron-FSDP, and that their comparison sees a change in any of its numbers.
#include "tests/conformance/torch_runs.h"

namespace gradledger::conform::torch {
namespace {

constexpr const char* file_of_v2 = "megatron_fsdp_v2.jsonl.gz";

TEST(recorded_runs_of_megatron_fsdp_v2, agree_with_their_replay_in_every_number) { EXPECT_EQ(agreement_of(recorded_runs(file_of_v2)), (RunTotals{382, 377734, 10828})); }

TEST(recorded_runs_of_megatron_fsdp_v2, differ_where_one_number_is_another) {
  const std::vector<TorchRun> runs = some_of(recorded_runs(file_of_v2));
  expect_noticed(runs, [](Moment& m) { return !m.buffers.empty() && nudge(m.buffers.rbegin()->second.values); });
  expect_noticed(runs, [](Moment& m) { return !m.weights.empty() && nudge(m.weights.back().values); });
  expect_noticed(runs, [](Moment& m) { return !m.weights.empty() && ++m.weights.back().offset > 0; });
  expect_noticed(runs, [](Moment& m) { return !m.transfers.empty() && nudge(m.transfers.rbegin()->second.in); });
  expect_noticed(runs, [](Moment& m) { return !m.transfers.empty() && nudge(m.transfers.rbegin()->second.out); });
  expect_noticed(runs, [](Moment& m) { return !m.collectives.empty() && ++m.collectives.back().numel > 0; });
}

// A module that a backward left unfinished goes on at 0.6.1, and raises at the head of Megatron-LM.
TEST(recorded_runs_of_megatron_fsdp_v2, are_told_apart_by_what_raises) {
  std::uint64_t told = 0;
  for (TorchRun run : recorded_runs(file_of_v2)) {
    run.version = run.version == "head" ? "0.6.1" : "head";
    told += judge(run)->outcome == Outcome::differs;
  }
  EXPECT_GT(told, 100u);
}

std::string outcome_of_v2(const char* config, const char* operations) { return outcome_of(line_of("megatron-fsdp-v2", "0.6.1", config, operations)); }

TEST(recorded_runs_of_megatron_fsdp_v2, that_have_no_scenario_say_why) {
  EXPECT_EQ(outcome_of_v2("{}", R"([["finish_grad_sync"]])"), "inexpressible: the operation finish_grad_sync");
  EXPECT_EQ(outcome_of_v2(R"({"mixed_precision": {"main_params_dtype": null}})", "[]").find("inexpressible: configuration: "), 0u);
  EXPECT_NE(outcome_of_v2("{}", R"([["zero_grad", {"set_to_none": 3}]])").find("/spec/ops/0/1/set_to_none: is 3"), std::string::npos);
}

}  // namespace
}  // namespace gradledger::conform::torch
