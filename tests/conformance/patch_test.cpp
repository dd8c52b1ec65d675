// What a recording says was mended in its environment: there it is held to what a GPU does.
#include <gtest/gtest.h>

#include "conformance/compact_format.h"
#include "conformance/compare.h"
#include "tests/conformance/recordings.h"

namespace gradledger::conform {
namespace {

bool is_switched(const RecordedRun& run, const std::string& name) {
  const auto recording = express(run);
  EXPECT_TRUE(recording) << recording.error().text();
  return recording->scenario.engine.as_of.switches.contains(name);
}

RecordedRun patched(RecordedRun run, const std::string& patch) {
  run.patch = patch;
  return run;
}

TEST(a_recording_with_contiguous_gradients_off, is_held_to_a_gpu_where_the_environment_was_mended) {
  const RecordedRun run = runs_of("contiguous_gradients_off").front();
  EXPECT_TRUE(is_switched(run, "separate_buckets"));
  EXPECT_EQ(judge(run)->outcome, Outcome::agrees);
  EXPECT_EQ(judge(patched(run, "fp16 is allowed on the CPU accelerator"))->outcome, Outcome::agrees);
  for (const char* patch : {"stage_1_and_2.split_half_float_double = by_dtype", "tensors are told by their dtype and not by the name of a tensor type"}) {
    const RecordedRun mended = patched(run, patch);
    EXPECT_FALSE(is_switched(mended, "separate_buckets")) << patch;
    EXPECT_EQ(judge(mended)->outcome, Outcome::differs) << "it drops what a mended environment would not";
  }
}

TEST(a_recording_that_reduces_gradients, is_of_no_environment_that_drops_them) {
  RecordedRun run = run_named("stages_1_to_3", "c1_z2_ga4_boundary", "post7665");
  EXPECT_FALSE(is_switched(run, "separate_buckets"));
  run.config["zero_optimization"]["contiguous_gradients"] = false;
  EXPECT_FALSE(is_switched(run, "separate_buckets")) << "its collectives show the gradients";
  for (auto& moments : run.ranks)
    for (RecordedMoment& moment : moments) moment.collectives.reset();
  EXPECT_TRUE(is_switched(run, "separate_buckets")) << "nothing shows that it was mended";
}

TEST(a_recording_with_overlap, is_held_to_one_stream_unless_there_were_more) {
  RecordedRun run = runs_of("contiguous_gradients_off").front();
  run.config["zero_optimization"]["overlap_comm"] = true;
  EXPECT_TRUE(is_switched(run, "overlap_lifetime"));
  EXPECT_FALSE(is_switched(patched(run, "virtual streams, whose memory is freed as on a GPU"), "overlap_lifetime"));
}

TEST(an_error_of_the_environment, ends_what_is_judged_unless_it_was_mended) {
  const RecordedRun run = run_named("coalesced_reduction", "coal_opt_zero_grad_z3_off", "head");
  EXPECT_TRUE(judge(run)->in_part());
  const auto mended = judge(patched(run, "optimizer.zero_grad() zeroes pinned memory"));
  EXPECT_EQ(mended->outcome, Outcome::differs);
  EXPECT_NE(mended->why.find("the recording raises RuntimeError"), std::string::npos) << mended->why;
}

TEST(a_patch, is_read_as_a_text_or_a_list_and_kept_by_both_formats) {
  const RecordedRun run = patched(runs_of("rounding").front(), "one. two");
  nlohmann::json line = to_recorder_format(run);
  EXPECT_EQ(*read_run(line), run);
  EXPECT_EQ(*read_run(nlohmann::json::parse(to_compact(run).dump())), run);
  line["spec"]["patch"] = {"one", "two"};
  EXPECT_EQ(*read_run(line), run);
  line["spec"]["patch"] = 7;
  EXPECT_EQ(read_run(line).error().text(), "/spec/patch: is 7; expected a text of at most 67108864 characters");
}

}  // namespace
}  // namespace gradledger::conform
