// The symbolic executor against runs on numbers: the corpus, drawn scripts of every engine, and faults that are planted. They share no arithmetic:
// one adds up fractions, the other rounds numbers as the framework does.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include <fmt/ranges.h>

#include "search/draw/generator.h"
#include "search/mutants/hunt.h"
#include "sim/frameworks/framework.h"
#include "sim/load.h"
#include "sim/scenario/parse.h"
#include "tests/support/of_numbers.h"
#include "tests/support/sanitized.h"
#include "tests/support/test_names.h"
#include "tests/support/two_executors.h"

namespace gradledger::testing {
namespace {

namespace fs = std::filesystem;

std::set<fs::path> scenario_files() {
  std::set<fs::path> out;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(fs::path(GRADLEDGER_SOURCE_DIR) / "scenarios")) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".json") && !name.ends_with(".schema.json") && !name.ends_with(".gradients.json") && !name.ends_with(".tokens.json")) out.insert(entry.path());
  }
  return out;
}

// More on demand: GRADLEDGER_CASES=100000, from GRADLEDGER_FIRST_CASE on.
std::uint64_t cases(std::uint64_t usual) {
  const char* wanted = std::getenv("GRADLEDGER_CASES");
  return wanted ? std::strtoull(wanted, nullptr, 10) : usual;
}

constexpr std::size_t shards = 2, one_of = sanitized ? 8 : 1;
class two_executors_on_the_corpus : public ::testing::TestWithParam<std::size_t> {};

TEST_P(two_executors_on_the_corpus, find_the_same_and_hold_the_same_weights) {
  std::size_t number = 0, judged = 0, wrong = 0;
  for (const fs::path& file : scenario_files()) {
    if (number++ % (shards * one_of) != GetParam()) continue;
    const Scenario scenario = load_scenario(file).value();
    if (scenario.expect.accounting_only || !fits_numbers(scenario)) continue;
    const Timeline timeline = make_timeline(scenario).value();
    const ByTwoExecutors both = judge_by_both(scenario, timeline, [&] { return make_producer(scenario, timeline); });
    ASSERT_TRUE(both.symbolic.weights) << file;
    ASSERT_FALSE(both.numeric.weights) << file;
    ++judged;
    wrong += both.finds_something();
    // Where an average is an approximation by contract, numbers tell less: tests/tools/ddp_test.cpp has what each tells.
    if (!timeline.contract.approximation) EXPECT_EQ(both.differences(), std::vector<std::string>{}) << file;
  }
  EXPECT_GT(judged, 700u / shards / one_of);
  EXPECT_GT(wrong, 120u / shards / one_of);
}

INSTANTIATE_TEST_SUITE_P(all, two_executors_on_the_corpus, ::testing::Range(std::size_t{0}, shards));

class two_executors_on_drawn_scripts : public ::testing::TestWithParam<std::string> {};

TEST_P(two_executors_on_drawn_scripts, find_the_same_and_hold_the_same_weights) {
  const Framework* framework = framework_named(GetParam());
  ASSERT_NE(framework, nullptr);
  search::Profile profile;
  for (const Variant& variant : framework->search_space()->variants()) profile.variants.push_back(&variant);
  std::uint64_t wrong = 0;
  const std::uint64_t drawn_cases = cases(sanitized ? 40 : 250);
  const char* first = std::getenv("GRADLEDGER_FIRST_CASE");
  for (std::uint64_t number = first ? std::strtoull(first, nullptr, 10) : 0, end = number + drawn_cases; number < end; ++number) {
    const search::Drawn drawn = search::draw_case(profile, 7, number);
    const ByTwoExecutors both = judge_by_both(
        drawn.scenario, drawn.timeline, [&] { return make_producer(drawn.scenario, drawn.timeline); }, number);
    wrong += both.finds_something();
    // As in the corpus: of an approximation numbers tell less.
    if (drawn.timeline.contract.approximation) continue;
    EXPECT_EQ(both.differences(), std::vector<std::string>{}) << GetParam() << ", case " << number << ": " << to_json(drawn.scenario).dump();
  }
  if (!first) EXPECT_GT(wrong, drawn_cases / 10) << "scripts that lose nothing prove little";
}

INSTANTIATE_TEST_SUITE_P(by_framework, two_executors_on_drawn_scripts, ::testing::Values("deepspeed", "ddp", "fsdp1", "fsdp2", "megatron", "megatron-fsdp", "megatron-fsdp-v2"),
                         [](const auto& info) { return name_of_test(info.param); });

// Every fault in every engine takes minutes: one of eight here.
TEST(two_executors_on_planted_faults, find_them_both) {
  constexpr std::uint32_t one_of_faults = sanitized ? 32 : 8, remainder = 5, cases_max = 24;
  std::uint32_t number = 0, planted = 0;
  for (const search::Mutant& mutant : search::mutants())
    for (const std::string_view variant : mutant.variants) {
      if (number++ % one_of_faults != remainder) continue;
      const search::Hunt hunt = search::hunt(mutant, variant, 1, cases_max);
      ASSERT_TRUE(hunt.found) << mutant.name;
      const Timeline timeline = make_timeline(*hunt.scenario).value();
      if (timeline.contract.approximation) continue;  // of one numbers tell less
      const ByTwoExecutors both = judge_by_both(
          *hunt.scenario, timeline, [&] { return make_producer(*hunt.scenario, timeline, {.engines = search::with_fault(mutant)}); }, 1);
      ++planted;
      EXPECT_TRUE(both.finds_something()) << mutant.name << " in " << variant;
      EXPECT_EQ(both.differences(), std::vector<std::string>{}) << mutant.name << " in " << variant;
    }
  EXPECT_GT(planted, sanitized ? 2u : 10u);
}

}  // namespace
}  // namespace gradledger::testing
