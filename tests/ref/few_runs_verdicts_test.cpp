// Judged in few runs, every scenario of the corpus is right or wrong as it is in many.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include <fmt/ranges.h>

#include "sim/load.h"
#include "tests/support/few_runs.h"

namespace gradledger::testing {
namespace {

namespace fs = std::filesystem;

std::set<fs::path> corpus_files() {
  std::set<fs::path> out;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(fs::path(GRADLEDGER_SOURCE_DIR) / "scenarios")) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".json") && !name.ends_with(".schema.json") && !name.ends_with(".gradients.json") && !name.ends_with(".tokens.json")) out.insert(entry.path());
  }
  return out;
}

TEST(few_runs, report_something_where_many_do_and_nothing_where_they_do_not) {
  std::size_t judged = 0, wrong = 0;
  for (const fs::path& file : corpus_files()) {
    const Scenario scenario = load_scenario(file).value();
    if (scenario.expect.accounting_only) continue;
    const Timeline timeline = make_timeline(scenario).value();
    const TwoVerdicts verdicts = judge_twice(scenario, timeline, [&] { return make_producer(scenario, timeline); });
    ++judged;
    wrong += !verdicts.full.findings.empty();
    EXPECT_EQ(verdicts.few.findings.empty(), verdicts.full.findings.empty()) << file << ": " << fmt::format("{}", fmt::join(verdicts.differences(), ", "));
    EXPECT_LE(verdicts.runs, 4u) << file;
  }
  EXPECT_GT(judged, 700u);
  EXPECT_GT(wrong, 300u);
}

}  // namespace
}  // namespace gradledger::testing
