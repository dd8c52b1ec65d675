// A handful of runs against as many as it takes: the corpus, one defect in worlds and windows of many sizes, faults that are planted, and drawn scenarios.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "ref/probes.h"
#include "search/draw/generator.h"
#include "search/mutants/hunt.h"
#include "sim/load.h"
#include "tests/support/few_runs.h"
#include "tests/support/of_numbers.h"
#include "tests/support/sanitized.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t runs_max = 13;  // whatever the number of ranks, micro-batches and steps; above 4 only where few elements have many weights

std::set<fs::path> corpus_files() {
  std::set<fs::path> out;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(fs::path(GRADLEDGER_SOURCE_DIR) / "scenarios")) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".json") && !name.ends_with(".schema.json") && !name.ends_with(".gradients.json") && !name.ends_with(".tokens.json")) out.insert(entry.path());
  }
  return out;
}

void expect_same_side(const TwoVerdicts& verdicts, const std::string& what) {
  EXPECT_EQ(verdicts.few.findings.empty(), verdicts.full.findings.empty()) << what << ": " << fmt::format("{}", fmt::join(verdicts.differences(), ", "));
  // Where values stop the loop, few runs judge what it came to; many go past it.
  if (verdicts.full.facts.stopped()) EXPECT_LE(verdicts.few.coverage.windows_judged, verdicts.full.coverage.windows_judged) << what;
  else EXPECT_EQ(verdicts.few.coverage.windows_judged, verdicts.full.coverage.windows_judged) << what;
  EXPECT_LE(verdicts.runs, runs_max) << what;
}

void expect_agreement(const TwoVerdicts& verdicts, const std::string& what) {
  expect_same_side(verdicts, what);
  EXPECT_EQ(verdicts.invented(), std::set<std::string>{}) << what << ": " << fmt::format("{}", fmt::join(verdicts.differences(), ", "));
}

// The test of many scenarios at once, in parts that run beside each other.
constexpr std::size_t shards = 4, one_of = sanitized ? 8 : 1;
class few_runs_corpus : public ::testing::TestWithParam<std::size_t> {};

TEST_P(few_runs_corpus, is_judged_right_or_wrong_as_in_many_and_no_class_is_made_up) {
  std::size_t number = 0, judged = 0, wrong = 0, open = 0, looked_again = 0;
  std::map<std::uint32_t, std::size_t> by_runs;
  for (const fs::path& file : corpus_files()) {
    if (number++ % (shards * one_of) != GetParam()) continue;
    const Scenario scenario = load_scenario(file).value();
    if (scenario.expect.accounting_only || !testing::fits_numbers(scenario)) continue;
    const Timeline timeline = make_timeline(scenario).value();
    const TwoVerdicts verdicts = judge_twice(scenario, timeline, [&] { return make_producer(scenario, timeline); });
    ++judged;
    wrong += !verdicts.full.findings.empty();
    open += verdicts.told_open();
    ++by_runs[verdicts.runs];
    if (timeline.contract.approximation) {  // of which numbers tell less: other classes, and windows that are inconclusive as a whole
      EXPECT_EQ(verdicts.few.findings.empty(), verdicts.full.findings.empty()) << file;
      continue;
    }
    expect_agreement(verdicts, file.string());
    if (verdicts.full.findings.empty() && verdicts.full.facts.races.empty()) {
      // Two more, with every second window each, where a loss scale may hide what a buffer of 16 bits had left over.
      const bool more = verdicts.runs == 4 && timeline.contract.loss_scale.initial > 1 && timeline.steps > 1;
      EXPECT_TRUE(verdicts.runs == 2 || more) << file << ": " << verdicts.runs;
      looked_again += more;
    }
  }
  RecordProperty("judged", static_cast<int>(judged));
  RecordProperty("open", static_cast<int>(open));
  for (const auto& [runs, scenarios] : by_runs) RecordProperty(fmt::format("runs_{}", runs), static_cast<int>(scenarios));
  EXPECT_GT(judged, 700u / shards / one_of);
  EXPECT_GT(wrong, 120u / shards / one_of);
  EXPECT_LE(looked_again, judged / 50) << "a loop that clears its gradients has two runs";
  EXPECT_LE(open, judged / 50) << "that weights stay open is the exception";
}

INSTANTIATE_TEST_SUITE_P(all, few_runs_corpus, ::testing::Range(std::size_t{0}, shards));

// DeepSpeed#7985, where what a boundary deposited stays private. Weights get hard to tell as contributions get many and shards small.
class few_runs_of_a_boundary_leak : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(few_runs_of_a_boundary_leak, name_it_or_leave_weights_open) {
  constexpr std::uint32_t contributions_max = sanitized ? 64 : 256;  // many runs look at each alone, which takes long
  for (const Dtype dtype : {Dtype::bfloat16, Dtype::float16})
    for (const std::uint32_t world : {2u, 4u, 8u}) {
      if (world * GetParam() > contributions_max) continue;
      Scenario s = load_scenario(fs::path(GRADLEDGER_SOURCE_DIR) / "scenarios/deepspeed-7985/boundary-leak-before-7985.json").value();
      s.world_size = world;
      s.model_dtype = dtype;
      deepspeed_config(s).bf16.enabled = dtype == Dtype::bfloat16;
      deepspeed_config(s).fp16.enabled = dtype == Dtype::float16;
      deepspeed_config(s).gradient_accumulation_steps = GetParam();
      s.script = {repeat(2, managed(GetParam()))};
      const Timeline timeline = make_timeline(s).value();
      const TwoVerdicts verdicts = judge_twice(s, timeline, [&] { return make_producer(s, timeline); });
      EXPECT_FALSE(verdicts.full.findings.empty());
      expect_agreement(verdicts, fmt::format("{} in a world of {}", name_of(dtype), world));
    }
}

INSTANTIATE_TEST_SUITE_P(by_window, few_runs_of_a_boundary_leak, ::testing::Values(4u, 8u, 16u, 32u, 64u));

// Every fault in every engine takes minutes: one of twelve here, others with another remainder.
TEST(few_runs_of_planted_faults, name_a_class_that_fits_or_leave_weights_open) {
  constexpr std::uint64_t seed = 1;
  constexpr std::uint32_t one_of = sanitized ? 36 : 12, remainder = 3, cases_max = 12;
  std::uint32_t number = 0, named = 0, planted = 0, others = 0;
  for (const search::Mutant& mutant : search::mutants())
    for (const std::string_view variant : mutant.variants) {
      if (number++ % one_of != remainder) continue;
      const search::Hunt hunt = search::hunt(mutant, variant, seed, cases_max);
      ASSERT_TRUE(hunt.found) << mutant.name;
      const Timeline timeline = make_timeline(*hunt.scenario).value();
      if (timeline.contract.approximation) continue;  // of one few numbers leave windows open that many judge
      const TwoVerdicts verdicts = judge_twice(
          *hunt.scenario, timeline, [&] { return make_producer(*hunt.scenario, timeline, {.engines = search::with_fault(mutant)}); }, seed);
      const auto fits = [&](const ref::Finding& f) { return std::find(mutant.classes.begin(), mutant.classes.end(), f.finding) != mutant.classes.end(); };
      ++planted;
      named += std::any_of(verdicts.few.findings.begin(), verdicts.few.findings.end(), fits);
      expect_same_side(verdicts, fmt::format("{} in {}", mutant.name, variant));
      others += !verdicts.invented().empty();
    }
  EXPECT_GT(planted, sanitized ? 2u : 10u);
  EXPECT_LE(10 * others, planted) << others << " of " << planted << " with a class that many runs do not name";
  EXPECT_GE(10 * named, 9 * planted) << named << " of " << planted;
}

TEST(few_runs_of_drawn_scenarios, find_something_where_many_runs_do_and_nothing_elsewhere) {
  constexpr std::uint64_t seed = 1, drawn_scenarios = sanitized ? 50 : 150;
  std::size_t others = 0;
  for (std::uint64_t number = 0; number < drawn_scenarios; ++number) {
    const search::Drawn drawn = search::draw_case({}, seed, number);
    const TwoVerdicts verdicts = judge_twice(
        drawn.scenario, drawn.timeline, [&] { return make_producer(drawn.scenario, drawn.timeline); }, seed);
    expect_same_side(verdicts, fmt::format("case {}", number));
    others += !verdicts.invented().empty();
  }
  EXPECT_LE(50 * others, drawn_scenarios) << others << " with a class that many runs do not name";
}

}  // namespace
}  // namespace gradledger::testing
