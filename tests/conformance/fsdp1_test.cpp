// Recorded runs of PyTorch's FullyShardedDataParallel, and that their comparison sees a change in any of its numbers.
#include "tests/conformance/torch_runs.h"

namespace gradledger::conform::torch {
namespace {

using nlohmann::json;

TEST(recorded_fsdp1_runs, agree_with_their_replay_in_every_number) { EXPECT_EQ(agreement_of(recorded_runs("fsdp1.jsonl.gz")), (RunTotals{167, 315255, 6251})); }

TEST(recorded_fsdp1_runs, differ_where_one_number_is_another) { expect_every_number_counts(some_of(recorded_runs("fsdp1.jsonl.gz"))); }

json fsdp1_line(const char* config, const char* operations) { return line_of("fsdp1", "2", config, operations); }

std::string fsdp1_outcome(const char* config, const char* operations) { return outcome_of(fsdp1_line(config, operations)); }

TEST(recorded_fsdp1_runs, that_have_no_scenario_say_why) {
  EXPECT_EQ(fsdp1_outcome(R"({"comm_hook": "bf16_compress"})", "[]"), "inexpressible: a communication hook, which asks for a stream and has none on a CPU");
  EXPECT_EQ(fsdp1_outcome("{}", R"([["launch"]])"), "inexpressible: the operation launch");
  EXPECT_EQ(fsdp1_outcome("{}", R"([["fb", 0, {"use": [0], "call_unused": true}], ["fb", 0, {"use": [1]}]])"),
            "inexpressible: units that are called without use in some forwards, and left out in others");
  EXPECT_NE(fsdp1_outcome(R"({"sharding_strategy": "SOME_SHARD"})", "[]").find("configuration: "), std::string::npos);
  EXPECT_NE(fsdp1_outcome(R"({"mixed_precision": 3})", "[]").find("configuration: "), std::string::npos);
  json crashed = fsdp1_line("{}", R"([["fb", 0]])");
  crashed["ranks"][0]["ended_by"] = "SIGSEGV";
  EXPECT_EQ(outcome_of(crashed), "inexpressible: a process that crashes, as a module computes with weights whose memory it has given up");
}

TEST(recorded_fsdp1_runs, that_are_malformed_are_named_by_their_place) {
  EXPECT_NE(fsdp1_outcome("{}", "[[]]").find("/spec/ops/0: "), std::string::npos);
  EXPECT_NE(fsdp1_outcome("{}", "[3]").find("/spec/ops/0: "), std::string::npos);
  EXPECT_NE(fsdp1_outcome("{}", "[[3]]").find("/spec/ops/0/0: "), std::string::npos);
  EXPECT_EQ(fsdp1_outcome("{}", R"([["fb", 0, {"use": [0], "call_unused": 1}]])"), "/spec/ops/0/2/call_unused: is 1; expected true or false");
  EXPECT_NE(fsdp1_outcome(R"({"mesh": [1, 3]})", "[]").find("/spec/config/mesh"), std::string::npos);
  EXPECT_NE(fsdp1_outcome(R"({"mesh": 3})", "[]").find("/spec/config/mesh"), std::string::npos);
  EXPECT_NE(fsdp1_outcome(R"({"unwrapped": [7]})", "[]").find("/spec/config/unwrapped/0"), std::string::npos);
  EXPECT_NE(fsdp1_outcome(R"({"unwrapped": 7})", "[]").find("/spec/config/unwrapped"), std::string::npos);
  EXPECT_EQ(fsdp1_outcome("{}", R"([["fsum", []]])"), "/spec/ops/0/1: is empty; expected at least one micro-batch");
}

}  // namespace
}  // namespace gradledger::conform::torch
