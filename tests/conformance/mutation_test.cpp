// The comparison can fail: recordings with a single thing altered differ, and the place is named.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/conformance/recordings.h"
#include "conformance/compare.h"

namespace gradledger::conform {
namespace {

// BF16_Optimizer, 2 ranks, ga = 4 and two windows of four micro-batches.
RecordedRun bf16_optimizer_run() { return run_named("bf16_optimizer", "c3_bf16opt_ga4_boundary", "head"); }

std::string difference(const RecordedRun& run) {
  const auto comparison = judge(run);
  if (!comparison) return "error: " + comparison.error().text();
  return comparison->outcome == Outcome::differs ? comparison->why : "does not differ: " + comparison->why;
}

constexpr std::size_t last_backward = 7, step = 8;  // of the first window
constexpr const char* partition = "fp32_groups_gradient_flat_partition[0]";

TEST(an_altered_recording, is_told_from_the_unaltered_one_that_agrees) {
  const RecordedRun run = bf16_optimizer_run();
  ASSERT_EQ(run.ranks[1][last_backward].operation, "fb 3");
  ASSERT_EQ(run.ranks[1][step].operation, "step");
  const auto comparison = judge(run);
  ASSERT_TRUE(comparison);
  EXPECT_EQ(comparison->outcome, Outcome::agrees);
  EXPECT_EQ(comparison->why, "");
}

TEST(an_altered_recording, differs_where_a_step_applied_another_coefficient) {
  RecordedRun run = bf16_optimizer_run();
  run.ranks[1][step].parameters[2][3] *= 2;
  EXPECT_EQ(difference(run), "rank 1, operation 8 (step): weight 3 of parameter 2 is -0.25 recorded, -0.125 replayed");
}

TEST(an_altered_recording, differs_where_one_element_of_an_accumulator_is_altered) {
  RecordedRun run = bf16_optimizer_run();
  run.ranks[1][last_backward].buffers.at(partition).values[5] = 0;
  EXPECT_EQ(difference(run), std::string("rank 1, operation 7 (fb 3): ") + partition + "[5] is 0 recorded, 0.125 replayed");
}

TEST(an_altered_recording, differs_by_a_single_unit_in_the_last_place) {
  RecordedRun run = bf16_optimizer_run();
  double& weight = run.ranks[0][step].parameters[0][8];
  weight = std::nextafter(static_cast<float>(weight), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(difference(run).starts_with("rank 0, operation 8 (step): weight 8 of parameter 0 is ")) << difference(run);
}

// A clipped gradient carries the rounding of its norm: with 64 elements less than 2^-17 of the weight.
TEST(an_altered_recording, that_clips_differs_where_a_weight_is_further_off_than_its_norms_rounding) {
  const RecordedRun recorded = run_named("drawn", "drawn_11_37", "0.19.8");
  ASSERT_EQ(recorded.config["gradient_clipping"], 2);
  constexpr std::size_t first_update = 3;
  ASSERT_NE(recorded.ranks[0][first_update].parameters[0][0], 0);
  const auto off_by = [&](double relative) {
    RecordedRun run = recorded;
    run.ranks[0][first_update].parameters[0][0] *= 1 + relative;
    return difference(run);
  };
  EXPECT_EQ(off_by(0), "does not differ: ");
  EXPECT_EQ(off_by(std::ldexp(1.0, -23)), "does not differ: ");
  EXPECT_TRUE(off_by(std::ldexp(1.0, -15)).starts_with("rank 0, operation 3 (step): weight 0 of parameter 0 is "));
}

TEST(an_altered_recording, differs_where_an_accumulator_lacks_a_micro_batch) {
  RecordedRun run = bf16_optimizer_run();
  const std::string name = "fp32_groups_gradients_flat[0]";
  run.ranks[0][3].buffers.at(name) = run.ranks[0][1].buffers.at(name);
  EXPECT_TRUE(difference(run).starts_with("rank 0, operation 3 (fb 1): " + name + "[1] is 0 recorded, ")) << difference(run);
}

TEST(an_altered_recording, differs_where_a_buffer_is_missing_added_or_of_another_size_or_dtype) {
  const RecordedRun run = bf16_optimizer_run();
  RecordedRun missing = run, added = run, shorter = run, narrower = run;
  missing.ranks[0][last_backward].buffers.erase(partition);
  EXPECT_EQ(difference(missing), std::string("rank 0, operation 7 (fb 3): the recording has no ") + partition);
  added.ranks[0][last_backward].buffers["averaged_gradients[0]"] = {"float32", {1}};
  EXPECT_EQ(difference(added), "rank 0, operation 7 (fb 3): the replay has no averaged_gradients[0]");
  shorter.ranks[0][last_backward].buffers.at(partition).values.pop_back();
  EXPECT_EQ(difference(shorter), std::string("rank 0, operation 7 (fb 3): ") + partition + " has 31 elements recorded, 32 replayed");
  narrower.ranks[0][last_backward].buffers.at(partition).dtype = "bfloat16";
  EXPECT_EQ(difference(narrower), std::string("rank 0, operation 7 (fb 3): ") + partition + " is bfloat16 recorded, float32 replayed");
}

TEST(an_altered_recording, differs_where_a_collective_is_missing_added_or_another) {
  const RecordedRun run = bf16_optimizer_run();
  ASSERT_EQ(run.ranks[1][last_backward].collectives, (std::vector<RecordedCollective>{{"all_reduce", 64, "float32"}}));
  const auto with = [&](std::vector<RecordedCollective> calls) {
    RecordedRun altered = run;
    altered.ranks[1][last_backward].collectives = std::move(calls);
    return difference(altered);
  };
  const std::string where = "rank 1, operation 7 (fb 3): ";
  EXPECT_EQ(with({}), where + "only the replay has collective 0, all_reduce of 64 float32");
  EXPECT_EQ(with({{"all_reduce", 64, "float32"}, {"all_reduce", 64, "float32"}}), where + "only the recording has collective 1, all_reduce of 64 float32");
  EXPECT_EQ(with({{"all_reduce", 32, "float32"}}), where + "collective 0 is all_reduce of 32 float32 recorded, all_reduce of 64 float32 replayed");
  EXPECT_EQ(with({{"all_reduce", 64, "bfloat16"}}), where + "collective 0 is all_reduce of 64 bfloat16 recorded, all_reduce of 64 float32 replayed");
  EXPECT_EQ(with({{"reduce", 64, "float32"}}), where + "collective 0 is reduce of 64 float32 recorded, all_reduce of 64 float32 replayed");
}

TEST(an_altered_recording, differs_in_stage_3_by_reductions_but_not_by_fetches_of_parameters) {
  RecordedRun run = run_named("stages_1_to_3", "c1_z3_ga4_managed", "head");
  std::vector<RecordedCollective>& calls = *run.ranks[0][0].collectives;
  const auto fetch = std::find_if(calls.begin(), calls.end(), [](const RecordedCollective& c) { return c.kind == "all_gather_into_tensor"; });
  ASSERT_NE(fetch, calls.end());
  calls.erase(fetch);
  const auto comparison = judge(run);
  ASSERT_TRUE(comparison);
  EXPECT_EQ(comparison->outcome, Outcome::agrees) << comparison->why;
  std::erase_if(calls, [](const RecordedCollective& c) { return c.kind == "reduce_scatter_tensor"; });
  EXPECT_TRUE(difference(run).starts_with("rank 0, operation 0 (fb 0): only the replay has collective 0, reduce_scatter_tensor of ")) << difference(run);
}

TEST(an_altered_recording, differs_where_the_reported_norm_is_beyond_rounding_or_absent) {
  const RecordedRun run = bf16_optimizer_run();
  RecordedRun doubled = run, absent = run;
  doubled.ranks[0][step].norm = *run.ranks[0][step].norm * 2;
  EXPECT_TRUE(difference(doubled).starts_with("rank 0, operation 8 (step): the gradient norm is 22.44")) << difference(doubled);
  absent.ranks[0][step].norm.reset();
  EXPECT_EQ(difference(absent), "rank 0, operation 8 (step): only the replay reports a gradient norm");
}

TEST(an_altered_recording, differs_where_only_one_side_raises_or_both_raise_differently) {
  const RecordedRun raises = run_named("stages_1_to_3", "c1_z1_ga1_misuse", "post7509");
  ASSERT_TRUE(raises.ranks[0].back().error.starts_with("TypeError")) << raises.ranks[0].back().error;
  const std::string operation = std::to_string(raises.ranks[0].size() - 1);
  RecordedRun other = raises, silent = raises, loud = bf16_optimizer_run();
  other.ranks[0].back().error = "KeyError: 0";
  EXPECT_EQ(difference(other), "rank 0, operation " + operation + " (" + raises.ranks[0].back().operation + "): the recording raises KeyError, the replay TypeError");
  for (auto& moments : silent.ranks) moments.pop_back();
  EXPECT_TRUE(difference(silent).starts_with("rank 0: the replay raises TypeError")) << difference(silent);
  loud.ranks[0].back().error = "ValueError: no";
  EXPECT_EQ(difference(loud), "rank 0, operation 17 (step): the recording raises ValueError, the replay does not");
}

TEST(an_altered_recording, differs_where_only_one_side_refuses_the_configuration) {
  RecordedRun accepted = bf16_optimizer_run(), refused = bf16_optimizer_run();
  refused.ranks.clear();
  refused.refusal = "AssertionError: not this";
  EXPECT_EQ(difference(refused), "the framework refuses the configuration (AssertionError: not this), the replay does not");
  for (const RecordedRun& run : runs_of("odd_orders"))
    if (!run.refusal.empty()) accepted.config = run.config;
  EXPECT_TRUE(difference(accepted).starts_with("the replay refuses the configuration: ")) << difference(accepted);
}

// The label decides which engine replays: the recording of one state of the code is no recording of the other.
TEST(an_altered_recording, differs_where_it_claims_another_release) {
  RecordedRun run = bf16_optimizer_run();
  run.version = "pre7985";
  EXPECT_TRUE(difference(run).starts_with("rank 0, operation 7 (fb 3): ")) << difference(run);
  RecordedRun offload = run_named("cpu_offload", "c2_z1_off_ga1_misuse", "post7981");
  offload.version = "pre7981";
  EXPECT_EQ(difference(offload), "rank 0, operation 1 (fb 1): the replay has no accumulated_grads_in_cpu[param0]");
  offload.version = "0.19.0";
  EXPECT_TRUE(difference(offload).starts_with("does not differ")) << difference(offload);
}

TEST(an_altered_recording, differs_where_its_gradients_were_others) {
  RecordedRun run = bf16_optimizer_run();
  for (double& x : run.gradients[2][1]) x *= 2;
  EXPECT_TRUE(difference(run).starts_with("rank ")) << difference(run);
}

// ---- every recording, not those that were picked ----------------------------------------------------------------------------------------

class every_recording : public ::testing::TestWithParam<const char*> {};

// The element of a run that is altered: of its last buffer or weights that a rank reports, so that all before it must agree.
double* last_number(RecordedRun& run) {
  for (auto& moments : run.ranks)
    for (auto moment = moments.rbegin(); moment != moments.rend(); ++moment) {
      if (!moment->parameters.empty() && !moment->parameters.back().empty()) return &moment->parameters.back().back();
      for (auto& [name, buffer] : moment->buffers)
        if (!buffer.values.empty()) return &buffer.values.back();
    }
  return nullptr;
}

bool is_reduction(const RecordedCollective& call) { return call.kind.find("reduce") != std::string::npos; }

TEST_P(every_recording, differs_when_its_last_number_is_altered) {
  std::uint64_t altered = 0;
  for (RecordedRun& run : runs_of(GetParam())) {
    const auto before = judge(run);
    double* number = last_number(run);
    if (number == nullptr || before->in_part()) continue;
    ASSERT_EQ(before->outcome, Outcome::agrees) << run.name;
    *number = *number == 1 ? 2 : 1;
    EXPECT_TRUE(difference(run).find(" recorded, ") != std::string::npos) << run.name << " at " << run.version << ": " << difference(run);
    ++altered;
  }
  EXPECT_GT(altered, 0u);
}

TEST_P(every_recording, differs_when_its_last_reduction_is_left_out) {
  std::uint64_t altered = 0;
  for (RecordedRun& run : runs_of(GetParam())) {
    if (judge(run)->in_part() || run.ranks.empty()) continue;
    std::vector<RecordedCollective>* calls = nullptr;
    for (RecordedMoment& moment : run.ranks.back())
      if (moment.collectives && std::any_of(moment.collectives->begin(), moment.collectives->end(), is_reduction)) calls = &*moment.collectives;
    if (calls == nullptr) continue;
    calls->erase(std::find_if(calls->rbegin(), calls->rend(), is_reduction).base() - 1);
    const std::string why = difference(run);
    EXPECT_TRUE(why.starts_with("rank ") && why.find(" collective ") != std::string::npos) << run.name << " at " << run.version << ": " << why;
    ++altered;
  }
  EXPECT_GT(altered, 0u);
}

INSTANTIATE_TEST_SUITE_P(of_every_file, every_recording,
                         ::testing::Values("stages_1_to_3", "cpu_offload", "bf16_optimizer", "bucket_options", "odd_orders", "fp16_overflow", "rounding", "stage_0"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace gradledger::conform
