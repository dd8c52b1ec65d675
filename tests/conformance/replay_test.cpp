// Every recorded run of the real framework, replayed by the engine and release that produced it: it agrees, number by number.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "sim/frameworks/deepspeed/engines.h"
#include "sim/frameworks/framework.h"
#include "tests/conformance/recordings.h"
#include "conformance/compare.h"

namespace gradledger::conform {
namespace {

struct Expected {
  const char* file;
  std::uint64_t agree;
  std::uint64_t in_part;  // of those that agree
  std::uint64_t inexpressible;
  std::uint64_t elements;
  std::uint64_t collectives;
  const char* reason;  // why the others cannot be expressed
};

// Counts are exact, so that a reader that skips something or an engine that models less shows here. docs/conformance.md states them too.
constexpr Expected all_expected[] = {
    {"stages_1_to_3", 135, 0, 0, 266891, 2628, ""},
    {"cpu_offload", 120, 0, 0, 232372, 2184, ""},
    {"bf16_optimizer", 55, 0, 0, 242814, 616, ""},
    {"bucket_options", 34, 0, 0, 53048, 772, ""},
    {"odd_orders", 307, 0, 0, 450027, 4502, ""},
    {"fp16_overflow", 48, 0, 0, 81190, 852, ""},
    {"rounding", 52, 0, 0, 6093, 418, ""},
    {"stage_0", 75, 0, 0, 113423, 524, ""},
    {"coalesced_reduction", 76, 1, 0, 148612, 832, ""},
    {"unmanaged_accumulation", 34, 0, 0, 33077, 406, ""},
    {"contiguous_gradients_off", 18, 0, 0, 28734, 144, ""},
    {"early_releases", 220, 0, 0, 424211, 3450, ""},
    {"newest_releases", 88, 0, 0, 139446, 1420, ""},
    {"loss_scales", 104, 0, 4, 288208, 3120, "the run is unfinished: rank "},
    {"adam", 36, 0, 0, 85007, 840, ""},
    {"first_step", 16, 0, 0, 24848, 72, ""},
    {"drawn", 135, 0, 2, 171436, 2613, "the run is unfinished: rank "},
};

std::string test_name(const ::testing::TestParamInfo<Expected>& info) { return info.param.file; }

class recorded_runs : public ::testing::TestWithParam<Expected> {};

TEST_P(recorded_runs, agree_with_their_replays_or_say_why_they_cannot_be_expressed) {
  const Expected& expected = GetParam();
  std::uint64_t agree = 0, in_part = 0, left_out = 0, elements = 0, collectives = 0;
  for (const RecordedRun& run : runs_of(expected.file)) {
    const auto comparison = judge(run);
    ASSERT_TRUE(comparison) << run.name << ": " << comparison.error().text();
    EXPECT_NE(comparison->outcome, Outcome::differs) << run.name << " at " << run.version << ": " << comparison->why;
    agree += comparison->outcome == Outcome::agrees;
    in_part += comparison->in_part();
    elements += comparison->elements;
    collectives += comparison->collectives;
    if (comparison->outcome != Outcome::inexpressible) continue;
    ++left_out;
    EXPECT_NE(comparison->why.find(expected.reason), std::string::npos) << run.name << ": " << comparison->why;
  }
  EXPECT_EQ(agree, expected.agree);
  EXPECT_EQ(in_part, expected.in_part);
  EXPECT_EQ(left_out, expected.inexpressible);
  EXPECT_EQ(elements, expected.elements);
  EXPECT_EQ(collectives, expected.collectives);
}

INSTANTIATE_TEST_SUITE_P(of_every_file, recorded_runs, ::testing::ValuesIn(all_expected), test_name);

TEST(recorded_runs_of_the_folder, are_all_expected_here) {
  std::set<std::string> expected, present;
  for (const Expected& e : all_expected) expected.insert(data_file(e.file));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(data_folder()))
    if (entry.path().extension() == ".gz") present.insert(entry.path().string());
  EXPECT_EQ(present, expected);
}

// What `gradledger list engines` and docs/conformance.md call recorded.
TEST(recorded_runs_of_the_folder, are_of_every_engine_that_is_called_recorded) {
  std::set<std::string> called, replayed;
  for (const EngineInfo& engine : deepspeed::engines())
    if (engine.evidence == "recorded") called.insert(std::string(engine.name));
    else EXPECT_EQ(engine.evidence, "read") << engine.name;
  for (const Expected& e : all_expected)
    for (const RecordedRun& run : runs_of(e.file)) {
      const auto recording = express(run);
      if (recording && recording->refusal.empty()) replayed.insert(std::string(engine_name(recording->scenario)));
    }
  EXPECT_EQ(replayed, called);
}

TEST(recorded_runs_of_the_folder, are_each_there_once) {
  std::map<std::pair<std::string, std::string>, std::string> seen;
  for (const Expected& e : all_expected)
    for (const RecordedRun& run : runs_of(e.file)) {
      const auto [it, is_new] = seen.emplace(std::pair(run.name, run.version), e.file);
      EXPECT_TRUE(is_new) << run.name << " at " << run.version << " is in " << it->second << " and in " << e.file;
    }
  EXPECT_EQ(seen.size(), 1559u);
}

TEST(recorded_runs_of_the_folder, have_the_figures_that_the_documentation_states) {
  std::ostringstream documentation;
  documentation << std::ifstream(std::filesystem::path(GRADLEDGER_SOURCE_DIR) / "docs/conformance.md").rdbuf();
  const std::string text = documentation.str();
  Expected all{"together", 0, 0, 0, 0, 0, ""};
  const auto row = [](const Expected& e) {
    const std::string in_part = e.in_part == 0 ? "" : fmt::format(", {} of them in part", e.in_part);
    return fmt::format("| {} | {}{} | 0 | {} | {} | {} |\n", e.file, e.agree, in_part, e.inexpressible, e.elements, e.collectives);
  };
  for (const Expected& e : all_expected) {
    EXPECT_NE(text.find(row(e)), std::string::npos) << row(e);
    all = {all.file, all.agree + e.agree, all.in_part + e.in_part, all.inexpressible + e.inexpressible, all.elements + e.elements, all.collectives + e.collectives, ""};
  }
  EXPECT_NE(text.find(row(all)), std::string::npos) << row(all);
}

// What an agreement rests on: a comparison that looked at nothing would agree too.
TEST(recorded_runs_of_the_folder, are_compared_in_every_run_and_on_every_rank) {
  for (const Expected& e : all_expected)
    for (const RecordedRun& run : runs_of(e.file)) {
      const auto comparison = judge(run);
      ASSERT_TRUE(comparison) << comparison.error().text();
      if (comparison->outcome != Outcome::agrees) continue;
      std::uint64_t held = run.refusal.empty() ? 0 : 1;
      // The wrappers of fp16 report a loss scale in bf16 too, which nobody uses.
      const auto recording = express(run);
      const bool inert = held == 0 && recording && recording->scenario.model_dtype == Dtype::bfloat16 && engine_name(recording->scenario).starts_with("FP16_");
      const std::uint64_t judged = comparison->in_part() ? 2 : run.operations.size();  // the error is in operation 2
      for (const std::vector<RecordedMoment>& moments : run.ranks)
        for (std::size_t i = 0; i < std::min<std::size_t>(judged, moments.size()); ++i) {
          held += moments[i].norm.has_value() + !moments[i].error.empty() + (moments[i].loss_scale.has_value() && !inert) + moments[i].overflow.has_value();
          if (!moments[i].error.empty()) continue;
          for (const auto& [name, buffer] : moments[i].buffers) held += buffer.values.size();
          for (const std::vector<double>& parameter : moments[i].parameters) held += parameter.size();
        }
      if (comparison->in_part()) EXPECT_GE(comparison->elements, held) << run.name;
      else EXPECT_EQ(comparison->elements, held) << run.name << " at " << run.version;
      EXPECT_GT(comparison->elements, 0u) << run.name;
    }
}

}  // namespace
}  // namespace gradledger::conform
