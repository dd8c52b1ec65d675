// docs/coverage.md is what the command makes of the corpus, and nothing in it is open.
#include <set>

#include "ref/finding.h"
#include "sim/scenario/served.h"
#include "tests/docs/markdown.h"
#include "verbs/coverage.h"

namespace gradledger::testing {
namespace {

using report::CoverageRow;
using verbs::CoveringScenario;

// Each scenario taken to report what it expects: tests/corpus holds it to that.
const std::vector<CoveringScenario>& corpus() {
  static const std::vector<CoveringScenario> scenarios = [] {
    auto found = verbs::covering_scenarios(source_folder / "scenarios", verbs::Options{});
    expects(found.ok(), "a corpus that covers entries");
    return std::move(found).value();
  }();
  return scenarios;
}

const CoverageRow& row_of(const std::vector<CoverageRow>& rows, std::string_view id) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const CoverageRow& r) { return r.entry->id == id; });
  expects(found != rows.end(), "an entry of the catalogue");
  return *found;
}

TEST(coverage_page, is_what_the_command_makes_of_the_corpus) {
  EXPECT_EQ(text_of(source_folder / "docs/coverage.md"), report::coverage_page(verbs::coverage_of(corpus()))) << "gradledger coverage scenarios --write docs/coverage.md";
}

TEST(coverage_page, has_a_row_for_every_entry_that_is_covered) {
  const std::string page = report::coverage_page(verbs::coverage_of(corpus()));
  for (const report::CoverageRow& row : verbs::coverage_of(corpus())) EXPECT_NE(page.find("\n| " + std::string(row.entry->id) + " | "), page.npos) << row.entry->id;
}

TEST(coverage_page, has_no_entry_that_is_open) {
  std::size_t covered = 0;
  for (const CoverageRow& row : verbs::coverage_of(corpus())) {
    EXPECT_EQ(row.problem, "") << row.entry->id;
    covered += !row.clean.empty();
  }
  EXPECT_GT(covered, 40u);
}

// What has no engine is no gap of the engines that there are.
TEST(catalogue, tells_reports_that_no_engine_serves) {
  std::size_t reports = 0, not_served = 0;
  for (const Entry& entry : catalogue()) {
    const bool is_report = entry.id.starts_with("zoo-") || entry.id.starts_with("newer-");
    reports += is_report;
    not_served += !is_served(entry);
    EXPECT_TRUE(is_report || is_served(entry)) << entry.id;
    if (entry.not_covered.starts_with("no engine")) EXPECT_FALSE(is_served(entry)) << entry.id;
  }
  EXPECT_EQ(not_served, 32u) << "each of them is an entry";
  EXPECT_GT(reports, 150u);
}

TEST(catalogue, names_classes_that_there_are) {
  for (const Entry& entry : catalogue())
    for (const std::string_view name : entry.classes) EXPECT_TRUE(name.empty() || ref::finding_class_named(name)) << entry.id << " " << name;
}

TEST(catalogue, gives_every_entry_a_name_of_its_own_that_speaks) {
  const std::regex speaking("[a-z0-9]+(-[a-z0-9]+){2,}");
  std::set<std::string_view> names;
  for (const Entry& entry : catalogue()) {
    EXPECT_TRUE(std::regex_match(std::string(entry.name), speaking)) << entry.id << " " << entry.name;
    EXPECT_TRUE(names.insert(entry.name).second) << entry.id << " " << entry.name;
  }
}

// What opens an entry: a scenario that is not as expected, a class that nothing reports, a twin that is missing, no scenario at all.
TEST(coverage, opens_an_entry_whose_scenarios_do_not_show_it) {
  const auto problem_after = [](auto&& change) {
    std::vector<CoveringScenario> scenarios = corpus();
    std::erase_if(scenarios, [&](CoveringScenario& s) { return s.covers.contains("catalogue-1") && change(s); });
    return row_of(verbs::coverage_of(scenarios), "catalogue-1").problem;
  };
  EXPECT_EQ(problem_after([](CoveringScenario&) { return false; }), "");
  EXPECT_EQ(problem_after([](CoveringScenario&) { return true; }), "no scenario, and no reason for having none");
  EXPECT_EQ(problem_after([](CoveringScenario& s) { return s.expected.empty(); }), "no clean twin");
  EXPECT_EQ(problem_after([](CoveringScenario& s) { return !s.expected.empty(); }), "no scenario reports offload-loss");
  const auto reporting = [&](const char* name, bool of_the_clean) {
    return problem_after([&](CoveringScenario& s) {
      if (s.expected.empty() == of_the_clean) s.reported = {name}, s.unmet = {std::string("not expected: ") + name};
      return false;
    });
  };
  EXPECT_NE(reporting("wrong-scale", false).find("not expected: wrong-scale"), std::string::npos);
  EXPECT_NE(reporting("offload-loss", true).find("not expected: offload-loss"), std::string::npos);
}

}  // namespace
}  // namespace gradledger::testing
