// Lanes of real programs: the order that their own waits make.
#include "verbs/lanes.h"

#include <algorithm>
#include <map>
#include <utility>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace gradledger::testing {
namespace {

report::Lanes lanes_in(const std::string& file) {
  const auto loaded = verbs::load(std::string(GRADLEDGER_SOURCE_DIR) + "/scenarios/" + file, {});
  report::Report report;
  if (!loaded) {
    ADD_FAILURE() << loaded.error().text();
    return {};
  }
  verbs::add_picture(**loaded, {}, report);
  EXPECT_TRUE(report.accounting.has_value());
  EXPECT_EQ(report.lanes->left_out, "");
  return std::move(*report.lanes);
}

const char* const races = "streams/released-in-flight-before-7965.json";

TEST(lanes, hold_operations_of_a_stream_one_behind_the_other) {
  const report::Lanes lanes = lanes_in(races);
  ASSERT_EQ(lanes.ranks.size(), 2u);
  for (const auto& rank : lanes.ranks) {
    std::map<Stream, std::uint64_t> done;
    EXPECT_GT(rank.size(), 10u);
    for (const report::LaneOperation& operation : rank) {
      EXPECT_GE(operation.begin, done[operation.stream]);
      EXPECT_GT(operation.end, operation.begin);
      done[operation.stream] = operation.end;
    }
    EXPECT_GE(done.size(), 2u);
  }
}

TEST(lanes, end_a_collective_at_once_on_all_of_its_ranks_and_behind_the_last_arrival) {
  const report::Lanes lanes = lanes_in(races);
  ASSERT_FALSE(lanes.meetings.empty());
  for (const report::Meeting& meeting : lanes.meetings) {
    EXPECT_TRUE(meeting.complete);
    ASSERT_EQ(meeting.members.size(), 2u);
    const auto& [first, first_at] = meeting.members.front();
    const auto& [last, last_at] = meeting.members.back();
    const report::LaneOperation &one = lanes.ranks[first][first_at], &other = lanes.ranks[last][last_at];
    EXPECT_EQ(one.end, other.end);
    EXPECT_LE(one.begin, other.begin);
    EXPECT_EQ(other.end, other.begin + 1);
  }
}

TEST(lanes, begin_a_backward_behind_that_of_the_next_stage_of_a_pipeline) {
  const report::Lanes lanes = lanes_in("parameters/pipeline-without-overlap.json");
  const auto deposit = [&](std::uint32_t rank) {
    const auto& all = lanes.ranks.at(rank);
    return std::find_if(all.begin(), all.end(), [](const report::LaneOperation& o) { return o.kind == OpKind::deposit && o.event == 0 && !o.at_start; });
  };
  const auto first = deposit(0), last = deposit(2);
  ASSERT_TRUE(first != lanes.ranks[0].end() && last != lanes.ranks[2].end());
  EXPECT_GE(first->begin, last->end);
}

// Weights are gathered in one communicator of the ranks, and gradients reduced in another: each has a first call. One rank gathers where the other reduces.
TEST(lanes, keep_the_calls_of_two_communicators_apart) {
  const report::Lanes lanes = lanes_in("parameters/gathers-beside-reductions-stage-3-0.18.9.json");
  std::map<Purpose, std::pair<std::size_t, std::size_t>> calls;  // complete, not complete
  for (const report::Meeting& meeting : lanes.meetings) {
    ++(meeting.complete ? calls[meeting.purpose].first : calls[meeting.purpose].second);
    EXPECT_EQ(meeting.members.size(), meeting.complete ? 2u : 1u) << meeting.what;
  }
  EXPECT_GT(calls[Purpose::parameter].first, 0u);
  EXPECT_EQ(calls[Purpose::gradient], (std::pair<std::size_t, std::size_t>{1, 1})) << "the other rank does not come to the second";
}

TEST(lanes, show_both_operations_of_every_race) {
  const report::Lanes lanes = lanes_in(races);
  ASSERT_FALSE(lanes.races.empty());
  for (const RaceRecord& race : lanes.races)
    for (const RacingOperation* one : {&race.first, &race.second}) {
      const auto& operations = lanes.ranks[race.rank];
      const auto at = std::find_if(operations.begin(), operations.end(), [&](const report::LaneOperation& o) { return o.number == one->number; });
      ASSERT_NE(at, operations.end()) << one->operation;
      EXPECT_EQ(name_of(at->stream), one->stream);
    }
}

TEST(lanes, of_a_rank_that_waits_for_ever_say_which_collective_is_not_complete) {
  const TemporaryFolder folder;
  const auto file =
      folder.write("deadlock.json", R"({"name": "waits", "world_size": 2, "parameters": [{"name": "w", "numel": 4}], "engine": {"framework": "deepspeed", "as_of": "head",
    "config": {"zero_optimization": {"stage": 2}}}, "script": [{"backward": {"ranks": [0]}}, {"step": {"ranks": [0]}}]})");
  const auto loaded = verbs::load(file, {});
  ASSERT_TRUE(loaded.ok()) << loaded.error().text();
  report::Report report;
  verbs::add_picture(**loaded, {}, report);
  const auto& meetings = report.lanes->meetings;
  ASSERT_TRUE(std::any_of(meetings.begin(), meetings.end(), [](const report::Meeting& m) { return !m.complete; }));
  for (const auto& rank : report.lanes->ranks)
    for (const report::LaneOperation& operation : rank) EXPECT_LE(operation.end, report.lanes->end);
}

TEST(lanes, that_are_past_the_memory_limit_are_left_out_with_a_reason) {
  const auto loaded = verbs::load(std::string(GRADLEDGER_SOURCE_DIR) + "/scenarios/" + races, {});
  ASSERT_TRUE(loaded.ok());
  verbs::Options options;
  options.memory_limit = verbs::bytes_needed((*loaded)->scenario) + 1;
  report::Report report;
  verbs::add_picture(**loaded, options, report);
  EXPECT_NE(report.lanes->left_out.find("--memory-limit"), std::string::npos);
  EXPECT_FALSE(report.accounting.has_value());
}

TEST(lanes, of_more_operations_than_a_page_draws_are_left_out_of_a_page_and_bytes_are_counted_all_the_same) {
  const auto loaded = verbs::load(std::string(GRADLEDGER_SOURCE_DIR) + "/scenarios/" + races, {});
  ASSERT_TRUE(loaded.ok());
  report::Report report;
  report.run.operations = 1u << 24;
  verbs::add_picture(**loaded, {}, report, verbs::Picture::page);
  EXPECT_NE(report.lanes->left_out.find("16777216 operations are more than a page draws"), std::string::npos);
  EXPECT_TRUE(report.accounting.has_value());
  verbs::add_picture(**loaded, {}, report, verbs::Picture::file);
  EXPECT_EQ(report.lanes->left_out, "");
}

// 4 096 micro-batches: kept, their programs take more than half of what is allowed, which is their part.
TEST(accounting, of_a_long_window_does_not_keep_the_programs_of_all_of_it) {
  const TemporaryFolder folder;
  const auto file = folder.write("long.json", R"({"name": "long", "world_size": 2, "parameters": [{"name": "w", "numel": 4}], "engine": {"framework": "deepspeed", "as_of": "head",
    "config": {"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": 4096}}, "script": [{"repeat": {"times": 4096, "of": [{"backward": {}}, {"step": {}}]}}]})");
  const auto loaded = verbs::load(file, {});
  ASSERT_TRUE(loaded.ok()) << loaded.error().text();
  verbs::Options options;
  options.memory_limit = 30u << 20;
  EXPECT_NO_THROW(verbs::account(**loaded, options, nullptr));
  EXPECT_THROW(verbs::account(**loaded, options, nullptr, [](std::span<const Rank>) {}), ProgramsTooLarge) << "who looks at the programs has them kept";
}

}  // namespace
}  // namespace gradledger::testing
