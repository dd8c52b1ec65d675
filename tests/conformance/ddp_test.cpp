// Recorded runs of PyTorch's DistributedDataParallel, and that their comparison sees a change in any of its numbers.
#include "tests/conformance/torch_runs.h"

namespace gradledger::conform::torch {
namespace {

using nlohmann::json;

TEST(recorded_ddp_runs, agree_with_their_replay_in_every_number) { EXPECT_EQ(agreement_of(recorded_runs("ddp.jsonl.gz")), (RunTotals{181, 295458, 1699})); }

TEST(recorded_ddp_runs, differ_where_one_number_is_another) { expect_every_number_counts(some_of(recorded_runs("ddp.jsonl.gz"))); }

TEST(recorded_ddp_runs, that_were_refused_differ_where_the_words_are_a_part_or_others) {
  std::vector<TorchRun> runs = recorded_runs("ddp.jsonl.gz");
  std::erase_if(runs, [](const TorchRun& run) { return run.refusal.empty(); });
  ASSERT_FALSE(runs.empty());
  for (TorchRun run : runs) {
    const std::string words = run.refusal;
    ASSERT_EQ(judge(run)->outcome, Outcome::agrees) << run.name;
    for (const std::string& other : {words.substr(words.find(": ") + 2), words.substr(0, words.size() - 1), words + "?"}) {
      run.refusal = other;
      EXPECT_EQ(judge(run)->outcome, Outcome::differs) << other;
    }
  }
}

TEST(recorded_ddp_runs, that_are_malformed_are_named_by_their_place) {
  const json line = json::parse(R"({"name": "a", "version": "2", "framework": "ddp", "spec": {"world": 1, "root": [2], "units": [], "sizes": [2], "n_mb": 1,
      "dtype": "float32", "config": {}, "ops": [["fb", 0]]}, "grads": {"rank0": {"mb0": [[1, 2]]}}, "ranks": [{"trace": []}]})");
  EXPECT_TRUE(read_torch_run(line).ok());
  const auto place = [&](const char* pointer, const json& value) {
    json changed = line;
    changed[json::json_pointer(pointer)] = value;
    const auto run = read_torch_run(changed);
    return run ? std::string("nothing") : run.error().where;
  };
  EXPECT_EQ(place("/spec/world", 0), "/spec/world");
  EXPECT_EQ(place("/spec/units", json::parse("[[3]]")), "/spec/units");
  EXPECT_EQ(place("/grads/rank0/mb0", json::parse("[[1]]")), "/grads/rank0/mb0/0");
  EXPECT_EQ(place("/grads/rank0/mb0", json::parse("[5]")), "/grads/rank0/mb0/0");
  EXPECT_EQ(place("/ranks/0/trace", json::parse(R"([{"op": ["step"]}])")), "/ranks/0/trace/0/op");
}

}  // namespace
}  // namespace gradledger::conform::torch
