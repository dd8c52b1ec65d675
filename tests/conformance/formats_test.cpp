// The two formats: each is read as the value that was written, and nothing that is wrong in them is taken at its word.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "sim/base/limits.h"
#include "tests/conformance/recordings.h"
#include "tests/support/sanitized.h"
#include "conformance/compact_format.h"
#include "conformance/compare.h"

namespace gradledger::conform {
namespace {

using nlohmann::json;

constexpr const char* all_files[] = {"stages_1_to_3",
                                     "cpu_offload",
                                     "bf16_optimizer",
                                     "bucket_options",
                                     "odd_orders",
                                     "fp16_overflow",
                                     "rounding",
                                     "stage_0",
                                     "coalesced_reduction",
                                     "unmanaged_accumulation",
                                     "contiguous_gradients_off",
                                     "early_releases",
                                     "newest_releases",
                                     "loss_scales",
                                     "adam",
                                     "first_step",
                                     "drawn"};

json parsed(const nlohmann::ordered_json& line) { return json::parse(line.dump()); }

TEST(formats, give_the_same_run_for_every_recording) {
  std::size_t seen = 0;
  for (const char* file : all_files)
    for (const RecordedRun& run : runs_of(file)) {
      if (testing::sanitized && seen++ % 5 != 0) continue;
      const auto from_recorder = read_run(to_recorder_format(run));
      ASSERT_TRUE(from_recorder) << run.name << ": " << from_recorder.error().text();
      EXPECT_EQ(*from_recorder, run) << run.name << " at " << run.version;
      const auto from_compact = read_run(parsed(to_compact(*from_recorder)));
      ASSERT_TRUE(from_compact) << run.name << ": " << from_compact.error().text();
      EXPECT_EQ(*from_compact, run) << run.name << " at " << run.version;
    }
}

// One parameter of two elements, two ranks, two micro-batches before a step, stage 0. Written out as a recorder would write it, so that the
// format itself is held, not only a writer against its reader. Both ranks' gradients: 1 and 2, then 3 and 4; the mean of the sums is 10 / 2.
constexpr const char* by_hand = R"({
  "name": "by-hand", "version": "head",
  "spec": {"world": 2, "sizes": [2], "n_mb": 2, "config": {"zero_optimization": {"stage": 0}, "gradient_accumulation_steps": 2, "gradient_clipping": 0},
           "ops": [["fb", 0], ["step"], ["fb", 1], ["step"]]},
  "grads": {"rank0": {"mb0": [[1, 0]], "mb1": [[3, 0]]}, "rank1": {"mb0": [[2, 8]], "mb1": [[4, 0]]}},
  "ranks": [
    {"trace": [{"op": ["fb", 0], "calls": [], "snap": {"micro_steps": 0, "param0.grad": {"dtype": "torch.float32", "raw": [0.5, 0]}}},
               {"op": ["step"], "calls": [], "snap": {"param0.grad": {"dtype": "torch.float32", "raw": [0.5, 0]}}, "params": [[0, 0]]},
               {"op": ["fb", 1], "calls": [["all_reduce", 2, "float32"]], "snap": {"param0.grad": {"dtype": "torch.float32", "raw": [2.5, 2]}}},
               {"op": ["step"], "snap": {}, "params": [[-2.5, -2]]}]},
    {"trace": [{"op": ["fb", 0], "calls": [], "snap": {"param0.grad": {"dtype": "torch.float32", "raw": [1, 4]}}},
               {"op": ["step"], "calls": [], "snap": {"param0.grad": {"dtype": "torch.float32", "raw": [1, 4]}}, "params": [[0, 0]]},
               {"op": ["fb", 1], "calls": [["all_reduce", 2, "float32"]], "snap": {"param0.grad": {"dtype": "torch.float32", "raw": [2.5, 2]}}},
               {"op": ["step"], "snap": {}, "params": [[-2.5, -2]]}]}]})";

// Of recorders that say more: the optimizer, what a collective did and between whom, what a step reports.
RecordedRun run_with_additions() {
  json line = json::parse(by_hand);
  line["spec"]["optimizer"] = {{"type", "SGD"}, {"lr", 1}};
  for (json& rank : line["ranks"]) {
    rank["trace"][2]["calls"][0].push_back({{"operator", "sum"}, {"group", {0u, 1u}}});
    rank["trace"][3]["loss_scale"] = 1;
    rank["trace"][3]["overflow"] = false;
  }
  auto run = read_run(line);
  EXPECT_TRUE(run) << run.error().text();
  return std::move(run).value();
}

TEST(formats, keep_what_newer_recorders_say) {
  const RecordedRun run = run_with_additions();
  EXPECT_EQ(run.optimizer, (json{{"type", "SGD"}, {"lr", 1}}));
  const RecordedCollective& call = run.ranks[0][2].collectives->front();
  EXPECT_EQ(call.operation, "sum");
  EXPECT_EQ(call.group, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(call.root, std::nullopt);
  EXPECT_EQ(run.ranks[1][3].loss_scale, 1);
  EXPECT_EQ(run.ranks[1][3].overflow, false);
  EXPECT_EQ(run.ranks[1][1].loss_scale, std::nullopt);
  const auto again = read_run(parsed(to_compact(run)));
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(*again, run);
}

std::string first_difference(const RecordedRun& run) {
  const auto comparison = judge(run);
  return comparison ? comparison->why : comparison.error().text();
}

TEST(formats, have_additions_that_are_held_against_the_replay) {
  const RecordedRun run = run_with_additions();
  EXPECT_EQ(first_difference(run), "");
  RecordedRun altered = run;
  altered.ranks[0][2].collectives->front().operation = "max";
  EXPECT_NE(first_difference(altered).find("by max between 0, 1 recorded, all_reduce of 2 float32 by sum"), std::string::npos) << first_difference(altered);
  altered = run;
  altered.ranks[0][2].collectives->front().group = {0};
  EXPECT_NE(first_difference(altered).find("between 0 recorded"), std::string::npos) << first_difference(altered);
  altered = run;
  altered.ranks[1][3].loss_scale = 2;
  EXPECT_EQ(first_difference(altered), "rank 1, operation 3 (step): the loss scale is 2 recorded, 1 replayed");
  altered = run;
  altered.ranks[1][3].overflow = true;
  EXPECT_EQ(first_difference(altered), "rank 1, operation 3 (step): an overflow is recorded, and not replayed");
}

TEST(formats, refuse_additions_that_are_malformed) {
  const auto refusal = [](auto alter) {
    json line = json::parse(by_hand);
    alter(line);
    const auto run = read_run(line);
    return run ? std::string("is read") : run.error().text();
  };
  EXPECT_NE(refusal([](json& line) { line["spec"]["optimizer"] = {{"type", "Lion"}}; }).find("/spec/optimizer"), std::string::npos);
  EXPECT_NE(refusal([](json& line) { line["ranks"][0]["trace"][2]["calls"][0].push_back({{"group", "all"}}); }).find("/calls/0/3/group"), std::string::npos);
  EXPECT_NE(refusal([](json& line) { line["ranks"][0]["trace"][3]["overflow"] = 1; }).find("/overflow: is 1; expected true or false"), std::string::npos);
}

TEST(formats, say_of_an_unfinished_run_why_it_is_not_judged) {
  json line = json::parse(by_hand);
  line["unfinished"] = "rank 1 was ended";
  line["ranks"][1]["trace"].erase(3);
  const auto run = read_run(line);
  ASSERT_TRUE(run) << run.error().text();
  const auto comparison = judge(*run);
  ASSERT_TRUE(comparison);
  EXPECT_EQ(comparison->outcome, Outcome::inexpressible);
  EXPECT_EQ(comparison->why, "the run is unfinished: rank 1 was ended");
  EXPECT_EQ(*read_run(parsed(to_compact(*run))), *run);
}

TEST(formats, of_the_recorder_are_read_from_text_written_by_hand) {
  const auto run = read_run(json::parse(by_hand));
  ASSERT_TRUE(run) << run.error().text();
  EXPECT_EQ(run->world, 2u);
  EXPECT_EQ(run->gradients[0][1], (std::vector<double>{2, 8}));
  EXPECT_EQ(run->ranks[1][2].buffers.at("param0.grad"), (RecordedBuffer{"float32", {2.5, 2}}));
  EXPECT_EQ(run->ranks[0][2].collectives, (std::vector<RecordedCollective>{{"all_reduce", 2, "float32"}}));
  EXPECT_EQ(run->ranks[0][3].collectives, std::nullopt);
  const auto comparison = judge(*run);
  ASSERT_TRUE(comparison);
  EXPECT_EQ(comparison->outcome, Outcome::agrees) << comparison->why;
  EXPECT_EQ(comparison->elements, 20u);
  EXPECT_EQ(comparison->collectives, 2u);
}

TEST(formats, that_are_compact_are_read_from_text_written_by_hand) {
  const auto run = read_run(json::parse(R"({
    "format": "gradledger recording 1", "name": "by-hand", "version": "0.18.9", "world": 2, "sizes": [2],
    "config": {"zero_optimization": {"stage": 0}, "gradient_accumulation_steps": 2, "gradient_clipping": 0},
    "operations": [["fb", 0], ["step"], ["fb", 1], ["step"]], "micro_batches": 2, "gradients": [[3, 4], [3, 4]],
    "vectors": [[0.5, 0], [2, 0], [0, 0], [1, 0], [1, 0], [-1, 0]],
    "ranks": [[{"changed": {"param0.grad": ["float32", 0]}}, {"weights": [2]}, {"changed": {"param0.grad": ["float32", 3]}},
               {"gone": ["param0.grad"], "weights": [5]}], 0]})"));
  ASSERT_TRUE(run) << run.error().text();
  EXPECT_EQ(run->ranks[1], run->ranks[0]);
  EXPECT_EQ(run->ranks[0][1].buffers.at("param0.grad").values, (std::vector<double>{0.5, 0}));  // what an operation does not change stays
  EXPECT_TRUE(run->ranks[0][3].buffers.empty());
  const auto comparison = judge(*run);
  ASSERT_TRUE(comparison);
  EXPECT_EQ(comparison->outcome, Outcome::agrees) << comparison->why;
}

TEST(formats, carry_every_kind_of_number) {
  RecordedRun run = *read_run(json::parse(by_hand));
  constexpr double whole_max = 9007199254740992.0;
  const std::vector<double> numbers{
      -0.0, std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), std::nan(""), std::ldexp(1.0, -149), whole_max, 2 * whole_max, 0.1, 1e300, -1};
  run.ranks[0][0].buffers["param0.grad"].values = numbers;
  for (const json& line : {parsed(to_compact(run)), to_recorder_format(run)}) {
    const auto again = read_run(line);
    ASSERT_TRUE(again) << again.error().text();
    EXPECT_EQ(*again, run);
  }
  RecordedRun positive = run;
  positive.ranks[0][0].buffers["param0.grad"].values[0] = 0.0;
  EXPECT_FALSE(positive == run) << "-0 is not 0";
}

// ---- what is wrong in a line ------------------------------------------------------------------------------------------------------------

struct Mistake {
  const char* patch;  // JSON patch of a good line
  const char* error;
};

std::string error_of(const json& good, const char* patch) {
  const json line = good.patch(json::parse(patch));
  const auto run = read_run(line);
  if (!run) return run.error().text();
  const auto comparison = judge(*run);
  return comparison ? "no error: " + comparison->why : comparison.error().text();
}

TEST(mistakes_of_the_recorder_format, are_reported_with_their_place) {
  const Mistake mistakes[] = {
      {R"([{"op": "remove", "path": "/spec"}])", R"(lacks "spec")"},
      {R"([{"op": "remove", "path": "/name"}])", R"(lacks "name")"},
      {R"([{"op": "remove", "path": "/ranks"}])", R"(lacks "ranks")"},
      {R"([{"op": "remove", "path": "/grads/rank1/mb0"}])", R"(/grads/rank1: lacks "mb0")"},
      {R"([{"op": "replace", "path": "/name", "value": 3}])", "/name: is 3; expected a text of at most 256 characters"},
      {R"([{"op": "replace", "path": "/spec", "value": []}])", "/spec: is an array of 0; expected an object"},
      {R"([{"op": "replace", "path": "/spec/config", "value": 7}])", "/spec/config: is 7; expected an object"},
      {R"([{"op": "replace", "path": "/spec/world", "value": 0}])", "/spec/world: is 0; expected a whole number from 1 to 128"},
      {R"([{"op": "replace", "path": "/spec/world", "value": -2}])", "/spec/world: is -2; expected a whole number from 1 to 128"},
      {R"([{"op": "replace", "path": "/spec/world", "value": 2.0}])", "/spec/world: is 2.0; expected a whole number from 1 to 128"},
      {R"([{"op": "replace", "path": "/spec/world", "value": 3}])", R"(/grads: lacks "rank2")"},
      {R"([{"op": "replace", "path": "/spec/world", "value": 1}])", "/ranks: is an array of 2; expected an array of at most 1"},
      {R"([{"op": "replace", "path": "/spec/sizes", "value": []}])", "/spec/sizes: is empty; expected the size of at least one parameter"},
      {R"([{"op": "replace", "path": "/spec/sizes/0", "value": "2"}])", R"(/spec/sizes/0: is "2"; expected a whole number from 0 to 2147483648)"},
      {R"([{"op": "replace", "path": "/spec/sizes/0", "value": 2147483648}])",
       "/spec/sizes: 2147483648 elements on 2 ranks over 4 operations or micro-batches would need too much memory; expected a product of at most 4194304"},
      {R"([{"op": "replace", "path": "/spec/n_mb", "value": 65537}])", "/spec/n_mb: is 65537; expected a whole number from 1 to 65536"},
      {R"([{"op": "replace", "path": "/spec/n_mb", "value": 3}])", R"(/grads/rank0: lacks "mb2")"},
      {R"([{"op": "replace", "path": "/grads/rank0/mb0", "value": [[1, 0], [1]]}])", "/grads/rank0/mb0: is an array of 2; expected an array of at most 1"},
      {R"([{"op": "replace", "path": "/grads/rank0/mb0/0", "value": [1]}])", "/grads/rank0/mb0/0: is an array of 1; expected an array of 2 numbers"},
      {R"([{"op": "replace", "path": "/grads/rank0/mb0/0/1", "value": null}])", R"(/grads/rank0/mb0/0/1: is null; expected a number, "inf", "-inf" or "nan")"},
      {R"([{"op": "remove", "path": "/ranks/1"}])", "/ranks: has entries for 1 ranks; expected one for each of 2"},
      {R"([{"op": "remove", "path": "/ranks/1/trace/3"}])", "/ranks/1: has 3 entries for 4 operations; expected one for each, up to an error"},
      {R"([{"op": "remove", "path": "/ranks/1/trace/2/op"}])", R"(/ranks/1/trace/2: lacks "op")"},
      {R"([{"op": "replace", "path": "/ranks/1/trace/2/op", "value": ["fb", 0]}])", "/ranks/1/trace/2/op: is not the operation at this place of /spec/ops"},
      {R"([{"op": "remove", "path": "/ranks/0/trace/0/snap/param0.grad/dtype"}])", R"(/ranks/0/trace/0/snap/param0.grad: lacks "dtype")"},
      {R"([{"op": "replace", "path": "/ranks/0/trace/0/snap/param0.grad/raw/0", "value": "one"}])",
       R"(/ranks/0/trace/0/snap/param0.grad/raw/0: is "one"; expected a number, "inf", "-inf" or "nan")"},
      {R"([{"op": "replace", "path": "/ranks/0/trace/1/params", "value": [[0]]}])", "/ranks/0/trace/1/params/0: is an array of 1; expected an array of 2 numbers"},
      {R"([{"op": "replace", "path": "/ranks/0/trace/2/calls/0", "value": ["all_reduce", -2, "float32"]}])",
       "/ranks/0/trace/2/calls/0/1: is -2; expected a whole number from 0 to 4294967295"},
      {R"([{"op": "replace", "path": "/ranks/0/trace/2/calls/0", "value": ["all_reduce"]}])", "/ranks/0/trace/2/calls/0: is an array of 1; expected an array of more than 1"},
      {R"([{"op": "add", "path": "/ranks/0/trace/3/global_grad_norm", "value": "big"}])",
       R"(/ranks/0/trace/3/global_grad_norm: is "big"; expected a number, "inf", "-inf" or "nan")"},
      {R"([{"op": "add", "path": "/ranks/0/trace/3/error", "value": 5}])", "/ranks/0/trace/3/error: is 5; expected a text of at most 67108864 characters"},
      {R"([{"op": "replace", "path": "/spec/ops/0", "value": ["fb", 2]}, {"op": "replace", "path": "/ranks/0/trace/0/op", "value": ["fb", 2]},
          {"op": "replace", "path": "/ranks/1/trace/0/op", "value": ["fb", 2]}])",
       "operations/0/1: is 2; expected a whole number from 0 to 1"},
  };
  const json good = json::parse(by_hand);
  for (const Mistake& mistake : mistakes) EXPECT_EQ(error_of(good, mistake.patch), mistake.error) << mistake.patch;
}

TEST(mistakes_of_the_compact_format, are_reported_with_their_place) {
  const json good = parsed(to_compact(*read_run(json::parse(by_hand))));
  ASSERT_EQ(error_of(good, "[]"), "no error: ");
  const Mistake mistakes[] = {
      {R"([{"op": "replace", "path": "/format", "value": "gradledger recording 2"}])", R"(/format: is not known; expected "gradledger recording 1")"},
      {R"([{"op": "remove", "path": "/vectors"}])", R"(lacks "vectors")"},
      {R"([{"op": "remove", "path": "/micro_batches"}])", R"(lacks "micro_batches")"},
      {R"([{"op": "replace", "path": "/vectors", "value": []}])", "/gradients/0/0: names a vector, but /vectors is empty"},
      {R"([{"op": "replace", "path": "/vectors/0", "value": 1}])", "/vectors/0: is 1; expected an array of at most 4194304 numbers"},
      {R"([{"op": "replace", "path": "/gradients", "value": "two-hot codes"}])", R"(/gradients: is "two-hot codes"; expected an array of more than 0)"},
      {R"([{"op": "replace", "path": "/gradients/1/1", "value": 99}])", "/gradients/1/1: is 99; expected a whole number from 0 to 8"},
      {R"([{"op": "add", "path": "/vectors/-", "value": [1]}, {"op": "replace", "path": "/gradients/1/1", "value": 9}])",
       "/gradients/1/1: names a vector of 1 elements; expected one of 2"},
      {R"([{"op": "add", "path": "/ranks/0/0/gone", "value": ["averaged"]}])", "/ranks/0/0/gone/0: names a buffer that was not there"},
      {R"([{"op": "replace", "path": "/ranks/0/0/changed/param0.grad", "value": 3}])", "/ranks/0/0/changed/param0.grad: is 3; expected an array of more than 0"},
      {R"([{"op": "replace", "path": "/ranks/0/0/changed/param0.grad/1", "value": true}])", "/ranks/0/0/changed/param0.grad/1: is true; expected a whole number from 0 to 8"},
      {R"([{"op": "replace", "path": "/ranks/0", "value": 0}])", "/ranks/0: says that the first rank is like an earlier one"},
      {R"([{"op": "replace", "path": "/ranks/1", "value": 1}])", "/ranks/1: is 1; expected a whole number from 0 to 0"},
      {R"([{"op": "replace", "path": "/ranks/0/1/weights", "value": []}])", "/ranks/0/1/weights: is an array of 0; expected an array of more than 0"},
      {R"([{"op": "remove", "path": "/ranks/1/3"}])", "/ranks/1: has 3 entries for 4 operations; expected one for each, up to an error"},
  };
  for (const Mistake& mistake : mistakes) EXPECT_EQ(error_of(good, mistake.patch), mistake.error) << mistake.patch;
}

// A short line may name the same long vector often: what it stands for is counted before it is copied.
TEST(mistakes_of_the_compact_format, cannot_ask_for_more_memory_than_a_limit) {
  json line = parsed(to_compact(*read_run(json::parse(by_hand))));
  const json operation = line["operations"][0];
  line["vectors"].push_back(std::vector<int>(1 << 16, 1));
  json& moments = line["ranks"][0] = json::array();
  line["operations"] = json::array();
  for (int i = 0; i < 128; ++i) {
    line["operations"].push_back(operation);
    moments.push_back(json::object());
  }
  moments[0]["changed"]["param0.grad"] = {"float32", line["vectors"].size() - 1};
  line["ranks"][1] = 0;
  const auto run = read_run(line);
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().text(), "/ranks/0/63: makes the recording hold more than 4194304 numbers; it would need too much memory");
}

}  // namespace
}  // namespace gradledger::conform
