// The two verdicts on stream order over the scenarios of the corpus that have several streams: the check of happens-before, from the
// program alone, and the search, from the values.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/search/programs.h"
#include "tests/support/of_numbers.h"

namespace gradledger::testing {
namespace {

namespace fs = std::filesystem;
using search::StreamAgreement;
using search::StreamOrders;

bool has_several_streams(const fs::path& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return std::ranges::any_of(std::array{"\"overlap_comm\": true", "\"produced_on\"", "\"offload_optimizer\""},
                             [&](const char* sign) { return text.find(sign) != std::string::npos; });
}

std::vector<fs::path> files_with_several_streams() {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(GRADLEDGER_SOURCE_DIR "/scenarios")) {
    const std::string name = entry.path().filename().string();
    const bool scenario = name.ends_with(".json") && !name.ends_with(".schema.json") && !name.ends_with(".gradients.json") && !name.ends_with(".tokens.json");
    if (scenario && has_several_streams(entry.path())) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Of at most 2^16 gradients: the others are too large to be searched while tests wait.
bool is_small(const Scenario& scenario) {
  std::uint64_t numel = 0;
  for (const Parameter& parameter : scenario.parameters) numel += parameter.numel;
  return numel * scenario.world_size <= 1u << 16;
}

// Races differ, and show. Without one there is a single outcome: that which the executor leaves, whatever its schedule.
void hold_against_each_other(const Scenario& scenario, const Timeline& timeline, const StreamOrders& orders, const std::string& name) {
  EXPECT_EQ(orders.agreement, StreamAgreement::agree) << name << ": " << orders.races.size() << " races, " << orders.outcomes << " outcomes, " << orders.states << " states";
  if (!orders.races.empty()) return;
  EXPECT_TRUE(orders.complete) << name;
  EXPECT_EQ(orders.states, 1u) << name << ": nothing meets in memory, so no order matters";
  ASSERT_EQ(orders.witnesses.size(), 1u) << name;
  const auto end = search::replay_streams(scenario, timeline, {}, orders.witnesses[0].decisions);
  ASSERT_TRUE(end) << name;
  EXPECT_EQ(end->outcome, orders.witnesses[0].outcome) << name;
  for (const std::uint64_t seed : {0, 1}) {
    const Contents executor = executed(scenario, timeline, EngineFactory(), {.seed = seed}).first;
    ASSERT_EQ(executor.size(), end->memory.size()) << name;
    for (std::size_t r = 0; r < executor.size(); ++r)
      for (std::size_t b = 0; b < executor[r].size(); ++b) {
        if (executor[r][b].empty()) continue;  // never allocated
        ASSERT_TRUE(executor[r][b] == end->memory[r][b]) << name << ", rank " << r << ", buffer " << b;
      }
  }
}

TEST(stream_corpus, has_one_outcome_without_a_race_and_several_with_one) {
  std::size_t with = 0, without = 0, stopped = 0;
  for (const fs::path& path : files_with_several_streams()) {
    const auto scenario = load_scenario(path);
    ASSERT_TRUE(scenario.ok()) << path;
    if (scenario->expect.accounting_only || !testing::fits_numbers(*scenario) || !is_small(*scenario)) continue;
    const auto timeline = make_timeline(*scenario);
    search::StreamOrderOptions options;
    options.states_max = 2000;
    const StreamOrders orders = search::explore_streams(*scenario, *timeline, options);
    if (orders.mismatch || orders.deadlock) {
      ++stopped;
      continue;
    }
    hold_against_each_other(*scenario, *timeline, orders, path.filename().string());
    ++(orders.races.empty() ? without : with);
  }
  EXPECT_GE(with, 8u);
  EXPECT_GE(without, 100u);
  EXPECT_LE(stopped, 10u);
}

bool orders_streams(const Op& op) { return op.kind == OpKind::wait || op.kind == OpKind::synchronize; }

// Leaves out the n-th thing that each rank waits for.
search::StreamOrderOptions without_wait(std::size_t n) {
  search::StreamOrderOptions options;
  options.states_max = 1000;
  options.alter = [n](std::uint32_t, Program& program) {
    std::size_t at = 0;
    for (Op& op : program.ops)
      if (orders_streams(op) && at++ == n) op.kind = OpKind::end_event;
  };
  return options;
}

TEST(stream_corpus, with_a_wait_left_out_has_a_race_that_shows_or_the_wait_was_not_needed) {
  std::size_t needed = 0, not_needed = 0;
  for (const fs::path& path : files_with_several_streams()) {
    if (path.parent_path().filename() != "streams") continue;
    const auto scenario = load_scenario(path);
    ASSERT_TRUE(scenario.ok()) << path;
    const auto timeline = make_timeline(*scenario);
    if (!search::explore_streams(*scenario, *timeline, without_wait(no_index)).races.empty()) continue;
    for (std::size_t n = 0; n < 12; ++n) {
      const StreamOrders orders = search::explore_streams(*scenario, *timeline, without_wait(n));
      EXPECT_EQ(orders.agreement, StreamAgreement::agree) << path.filename() << " without wait " << n << ": " << orders.races.size() << " races, " << orders.outcomes
                                                          << " outcomes";
      ++(orders.races.empty() ? not_needed : needed);
    }
  }
  EXPECT_GT(needed, 20u);
  EXPECT_GT(not_needed, 20u);
}

// A stage is delayed here by nothing that another one sends, and who reads the report is told.
TEST(stream_corpus, says_where_stages_of_a_pipeline_receive) {
  for (const auto& [file, receives] :
       {std::pair{"/scenarios/parameters/pipeline-of-two-stage-1.json", true}, {"/scenarios/catalogue/18-set-gradient-keeps-the-old-norm.json", false}}) {
    const auto scenario = load_scenario(GRADLEDGER_SOURCE_DIR + std::string(file));
    ASSERT_TRUE(scenario.ok()) << file;
    const StreamOrders orders = search::explore_streams(*scenario, *make_timeline(*scenario), {.states_max = 2000});
    EXPECT_EQ(orders.receives_pass, receives) << file;
  }
}

}  // namespace
}  // namespace gradledger::testing
