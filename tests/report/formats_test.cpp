// The table of formats, and the values of the verbs beside replay in each of them.
#include <algorithm>
#include <set>

#include "tests/report/made_by_hand.h"

namespace gradledger::testing {
namespace {

using nlohmann::json;

TEST(formats, have_names_of_their_own_and_can_be_made) {
  std::set<std::string_view> names;
  for (const report::Format& format : report::formats()) {
    EXPECT_TRUE(names.insert(format.name).second) << format.name;
    EXPECT_FALSE(format.what.empty());
    const auto renderer = report::renderer(format.name, {});
    ASSERT_TRUE(renderer) << format.name;
    EXPECT_NE(renderer->text(report_by_hand()).find("gradledger replay a.json --seed 7"), std::string::npos) << format.name;
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"terminal", "json"}));
  EXPECT_EQ(report::renderer("papyrus", {}), nullptr);
}

TEST(what_stands_between_and_before, is_for_people_alone) {
  const auto people = report::renderer("terminal", {}), programs = report::renderer("json", {});
  EXPECT_EQ(people->head("gradledger fuzz"), "# gradledger fuzz\n");
  EXPECT_EQ(people->between(), "\n");
  EXPECT_EQ(programs->head("gradledger fuzz") + programs->between(), "");
}

report::GateReport gate_by_hand() {
  report::GateReport gate;
  gate.files = 4;
  for (const char* name : {"good", "bad", "other"}) {
    report::GateRow row;
    row.file = std::string(name) + ".json";
    row.scenario = name;
    row.expected = "clean";
    row.reported = "clean";
    gate.rows.push_back(row);
  }
  gate.rows[1].reported = "wrong-scale";
  gate.rows[1].unmet = {"not expected: wrong-scale: twice", "a second line"};
  return gate;
}

TEST(a_gate, counts_what_passed_what_failed_and_what_was_not_run) {
  const report::GateReport gate = gate_by_hand();
  EXPECT_EQ(gate.passed(), 2u);
  EXPECT_EQ(gate.failed(), 1u);
  EXPECT_EQ(gate.not_run(), 1u);
  EXPECT_EQ(shown("terminal", gate),
            "        scenario  expected  reported\n"
            "ok      good      clean     clean\n"
            "FAILED  bad       clean     wrong-scale\n"
            "        not expected: wrong-scale: twice\n"
            "        a second line\n"
            "ok      other     clean     clean\n"
            "2 passed, 1 failed, 1 not run\n");
  EXPECT_EQ(shown("terminal", gate.rows[1]), "") << "the table has it";
}

TEST(a_gate, is_an_object_a_row_for_programs) {
  const report::GateReport gate = gate_by_hand();
  EXPECT_EQ(shown("json", gate), "") << "the rows are there already";
  const json row = objects_of(shown("json", gate.rows[1])).at(0);
  EXPECT_EQ(row["scenario"], "bad");
  EXPECT_EQ(row["passed"], false);
  EXPECT_EQ(row["problems"][0]["text"], "not expected: wrong-scale: twice");
  EXPECT_EQ(row["problems"][1]["text"], "a second line");
  EXPECT_EQ(row["tool"]["version"], "9.8.7");
}

TEST(a_gate_over_mutants, names_each_that_survives) {
  report::MutantReport report;
  using ref::FindingClass;
  report.rows = {{"twice", "zero1", {FindingClass::wrong_scale}, {FindingClass::wrong_scale}, true, 3},
                 {"twice", "zero2", {FindingClass::wrong_scale}, {}, false, 24},
                 {"lost", "zero1", {FindingClass::discarded_gradient}, {FindingClass::discarded_gradient}, true, 1}};
  EXPECT_EQ(report.mutants(), 2u);
  EXPECT_EQ(report.alive(), 1u);
  const std::string text = shown("terminal", report);
  for (const char* part : {"ALIVE   twice ", " 1 of 2 engines", "survives in zero2 for 24 cases; fitting would be wrong-scale\n", "found   lost ",
                           "2 mutants planted in 3 engines altogether: 2 found, 1 alive\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const auto objects = objects_of(shown("json", report));
  ASSERT_EQ(objects.size(), 3u);
  EXPECT_EQ(objects[1]["found"], false);
}

TEST(coverage, says_of_each_entry_whether_it_is_open) {
  report::CoverageReport report;
  report.scenarios = 5;
  for (const Entry& entry : loop_defects()) {
    report.rows.push_back({&entry, {"a", "b"}, {"c"}, {"wrong-scale"}, ""});
    if (report.rows.size() == 2) break;
  }
  report.rows[1].problem = "no clean twin";
  EXPECT_EQ(report.open(), 1u);
  const std::string id(report.rows[1].entry->id), text = shown("terminal", report);
  EXPECT_NE(text.find("open: no clean twin\n2 entries, 5 scenarios, 1 open\n"), std::string::npos) << text;
  report.outdated_page = "page.md";
  EXPECT_NE(shown("terminal", report).find("1 open; page.md is out of date\n"), std::string::npos);
  const auto objects = objects_of(shown("json", report));
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_EQ(objects[1]["entry"], id);
  EXPECT_EQ(objects[1]["verdict"], "open: no clean twin");
  EXPECT_EQ(objects[1]["defective"], json::array({"a", "b"}));
  EXPECT_NE(report::coverage_page(report.rows).find("| `a`, `b` | `c` | open: no clean twin |"), std::string::npos);
}

TEST(a_listing, is_a_table_for_people_and_an_object_for_programs) {
  const report::Listing listing{.what = "things", .table = {{"name", "says"}, {"a long one", "x"}, {"b", ""}}};
  EXPECT_EQ(shown("terminal", listing), "name        says\na long one  x\nb           \n");
  const json object = json::parse(shown("json", listing));
  EXPECT_EQ(object["list"], "things");
  EXPECT_EQ(object["rows"], (json::array({{{"name", "a long one"}, {"says", "x"}}, {{"name", "b"}, {"says", ""}}})));
}

TEST(a_comparison_of_producers, is_a_line) {
  report::ProducersReport report;
  report.scenario = "s";
  report.compare = "host,gpu";
  report.equal = true;
  report.records = 12;
  report.text = "equal: 12 records of 2 runs";
  EXPECT_EQ(shown("terminal", report), "s: equal: 12 records of 2 runs\n");
  EXPECT_EQ(objects_of(shown("json", report)).at(0)["records"], 12);
}

TEST(an_accounting, of_a_summary_is_its_row_alone) {
  report::AccountingReport report;
  report.scenario = "s";
  report.row = {.mode = "no_sync", .backwards = 4, .peak_window_bytes = 3u << 20};
  report.accounting.ranks.resize(2);
  EXPECT_EQ(objects_of(shown("json", report)).at(0)["ranks"].size(), 2u);
  EXPECT_NE(shown("terminal", report).find("scenario s: "), std::string::npos);
  report.in_short = true;
  EXPECT_TRUE(objects_of(shown("json", report)).at(0)["ranks"].empty());
  EXPECT_EQ(objects_of(shown("json", report)).at(0)["row"]["peak_window_bytes"], 3u << 20);
  EXPECT_EQ(shown("terminal", report), "");
  const report::AccountingSummary summary{"gradledger replay --accounting", {report.row}};
  EXPECT_TRUE(shown("terminal", summary).starts_with("# gradledger replay --accounting\nstage  mode "));
  EXPECT_NE(shown("terminal", summary).find("3 MiB + T"), std::string::npos);
  EXPECT_EQ(shown("json", summary), "");
}

}  // namespace
}  // namespace gradledger::testing
