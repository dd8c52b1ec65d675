// A report that nobody ran, in each format.
#include "report/html/html.h"
#include "report/words.h"
#include "tests/report/made_by_hand.h"

namespace gradledger::testing {
namespace {

using nlohmann::json;
using report::Outcome;
using report::Report;

TEST(a_report_for_people, shows_what_the_value_holds) {
  EXPECT_EQ(shown("terminal", report_by_hand()),
            "a: discarded-gradient\n"
            "# SomeOptimizer as of 0.1.0, offload_keep=never, as it comes\n"
            "# 2 ranks, 12 elements in 2 parameters, bf16; producer host\n"
            "# planted: 8 in w1[0] of micro-batch 1 of rank 0, step 2\n"
            "# a note of two lines\n"
            "\n"
            "discarded-gradient: one micro-batch is missing\n"
            "  whose: usage (single-boundary). Two backwards stand before the step.\n"
            "  known: catalogue-0 a-name (Somewhere#1), a defect; since 0.0.9, fixed in 0.2.0. To avoid it: Wait.\n"
            "  worst element: w1[2] is 1 (0x3f80), due 3; the error is 4 times its bound\n"
            "judged: 10 of 14 snapshots of gradients (4 " +
                std::string(name_of(ref::NotDue{})) +
                "), 2 of 3 windows that a step closes\n"
                "not judged: the gradient that is applied at event 5, which nobody showed\n"
                "not judged: skipped of 1 steps, which rank 1 did not report\n"
                "inconclusive: 2 rows of the ledger, in which rounding hides weights, though not absences\n"
                "inconclusive: 1 row of the ledger, in which some weight is beyond fractions of 62 bits, or some value is no sum of contributions\n"
                "not decoded: 8 of 40 contributions, past the limit of one judgement\n"
                "open: the script ends with gradients that no step has applied\n"
                "repeat with: gradledger replay a.json --seed 7\n"
                "2 fingerprint, 3 decode and 4 value passes; trace 0000000000000abc\n"
                "\n"
                "ledger of the gradient applied in step 2 (weight of each contribution; [observed for due] is wrong)\n"
                "  rank  elements          r0 m0  r0 m1\n"
                "  1     w0[0:4], w1[2:8]  1/2    [0 for 1/2]\n"
                "\n"
                "events: the gradients that ranks held (* its books do not balance), the collectives that they issued\n"
                "    3  step (call 2 of 2)\n"
                "       rank 1  *accumulator (local); -> all_reduce; no overflow\n");
}

TEST(a_report, says_where_a_known_defect_was_looked_for_with_fewer_ranks_or_not_at_all) {
  Report report = report_by_hand();
  report.world_size = 1024;
  const std::string fewer = "Wait. That is what the script shows with the first 2 ranks; with all 1024 the releases were not compared.";
  EXPECT_NE(shown("terminal", report).find(fewer), std::string::npos);
  const auto on_page = [](const Report& of) { return json::parse(report::Html().text(of))["findings"][0]; };
  EXPECT_EQ(on_page(report)["known"]["of_fewer_ranks"], fewer.substr(5));
  EXPECT_EQ(objects_of(shown("json", report)).at(0)["findings"][0]["known"]["ranks"], 2);
  EXPECT_EQ(on_page(report_by_hand())["known"]["of_fewer_ranks"], "");
  report.findings[0].known.reset();
  report.findings[0].too_large = true;
  EXPECT_NE(shown("terminal", report).find("known: not looked for; the run is too large"), std::string::npos);
  EXPECT_EQ(on_page(report)["known_not_looked_for"], report::known_not_looked_for);
  EXPECT_EQ(objects_of(shown("json", report)).at(0)["findings"][0]["known_too_large"], true);
}

TEST(a_report_for_people, has_no_events_where_it_is_short_and_colours_where_it_may) {
  Report report = report_by_hand();
  report.in_short = true;
  EXPECT_EQ(shown("terminal", report).find("step (call 2 of 2)"), std::string::npos);
  EXPECT_EQ(shown("terminal", report).find('\033'), std::string::npos);
  const std::string coloured = report::renderer("terminal", {.colour = true})->text(report);
  EXPECT_NE(coloured.find("\033[31;1m[0 for 1/2]\033[0m"), std::string::npos) << coloured;
}

TEST(a_report_for_programs, holds_what_the_value_holds) {
  const auto objects = objects_of(shown("json", report_by_hand()));
  ASSERT_EQ(objects.size(), 1u);
  const json& o = objects[0];
  EXPECT_EQ(o["schema_version"], 2);
  EXPECT_EQ(o["record"], "replay");
  EXPECT_EQ(o["tool"], (json{{"name", "gradledger"}, {"version", "9.8.7"}, {"commit", "abcdef"}, {"compiler", "GNU 99"}, {"build_type", "Debug"}}));
  EXPECT_EQ(o["command"], "gradledger replay a.json --seed 7");
  EXPECT_EQ(o["engine"], "SomeOptimizer");
  EXPECT_EQ(o["behaviours"], (json{{"offload_keep", "never"}}));
  EXPECT_EQ(o["verdict"], "findings");
  EXPECT_EQ(o["open"], true);
  EXPECT_EQ(o["coverage"]["snapshots"], 14);
  EXPECT_EQ(o["coverage"]["not_judged"][std::string(name_of(ref::NotDue{}))], 4);
  EXPECT_EQ(o["coverage"]["missing_facts"], (json::array({{{"event", 3}, {"rank", 1}, {"fact", "skipped"}}})));
  EXPECT_EQ(o["coverage"]["applied_gradients_not_shown"], json::array({5}));
  const json elements = json::array({{{"parameter", "w0"}, {"begin", 0}, {"end", 4}}, {{"parameter", "w1"}, {"begin", 2}, {"end", 8}}});
  ASSERT_EQ(o["findings"].size(), 1u);
  const json& f = o["findings"][0];
  EXPECT_EQ(f["class"], "discarded-gradient");
  EXPECT_EQ(f["pointer"], "/script/1");
  EXPECT_EQ(f["elements"], elements);
  EXPECT_EQ(f["contributions"], (json::array({{{"step", 2}, {"rank", 0}, {"micro_batch", 1}, {"expected", 0.5}, {"observed", 0.0}}})));
  EXPECT_EQ(f["blame"], (json{{"whose", "usage"}, {"rule", "single-boundary"}, {"why", "Two backwards stand before the step."}}));
  EXPECT_EQ(f["known"]["entry"], "catalogue-0");
  EXPECT_EQ(f["known"]["name"], "a-name");
  EXPECT_EQ(f["worst"]["error_over_bound"], 4);
  EXPECT_EQ(f["sentence"], "discarded-gradient: one micro-batch is missing");
  EXPECT_EQ(o["ledger"][0]["elements"], elements);
  EXPECT_EQ(o["ledger"][0]["weights"].size(), 2u);
  EXPECT_EQ(o["collectives_by_rank_and_step"]["gradient"], (json::array({{0, 1}, {0, 1}})));
  EXPECT_EQ(o["trace_hash"], "0000000000000abc");
  EXPECT_EQ(o["bytes_peak"], 96);
}

TEST(a_report_for_programs, lists_contributions_up_to_a_limit_and_has_all_of_them_in_blocks) {
  Report report = report_by_hand();
  report.findings[0].contributions.clear();
  ref::AppliedRow& row = report.ledger[0];
  row.columns.clear();
  for (std::uint32_t m = 0; m < 3; ++m)
    for (std::uint32_t r = 0; r < 1000; ++r) {
      report.findings[0].contributions.push_back({{2, r, m}, 0.5, 0});
      row.columns.push_back({2, r, m});
    }
  row.row.expected.assign(3000, 0.5);
  row.row.observed.assign(3000, 0.5);
  row.row.observed[2999] = 0;
  const json shown_report = objects_of(shown("json", report)).at(0);
  const json &f = shown_report["findings"][0], &weights = shown_report["ledger"][0];
  EXPECT_EQ(f["contributions"].size(), 1024u);
  EXPECT_EQ(f["contributions"][1023], (json{{"step", 2}, {"rank", 23}, {"micro_batch", 1}, {"expected", 0.5}, {"observed", 0.0}}));
  EXPECT_EQ(f["contributions_not_listed"], 1976);
  EXPECT_EQ(f["contribution_blocks"], (json::array({{{"step", 2}, {"ranks", {0, 999}}, {"micro_batches", {0, 2}}, {"expected", 0.5}, {"observed", 0.0}}})));
  EXPECT_EQ(weights["weights"].size(), 1024u);
  EXPECT_EQ(weights["weights_not_listed"], 1976);
  ASSERT_EQ(weights["weight_blocks"].size(), 3u);
  EXPECT_EQ(weights["weight_blocks"][2],
            (json{{"step", 2}, {"ranks", {999, 999}}, {"micro_batches", {2, 2}}, {"expected", 0.5}, {"observed", 0.0}, {"misplaced", false}, {"open", false}}));
}

TEST(a_report_for_programs, says_of_each_weight_whether_it_is_misplaced_and_whether_it_is_told) {
  Report report = report_by_hand();
  ref::AppliedRow& row = report.ledger[0];
  row.columns.insert(row.columns.end(), {{1, 0, 0}, {1, 0, 1}});
  row.row.observed = {0.5, 0, 0, 0};
  row.row.expected = {0.5, 0.5, 0, 0};
  row.row.misplaced = {false, true, true, false};
  row.row.open = {true, false, false, false};
  const json weights = objects_of(shown("json", report)).at(0)["ledger"][0]["weights"];
  ASSERT_EQ(weights.size(), 3u) << "of the last one nothing is due and nothing is there";
  EXPECT_EQ(weights[0], (json{{"step", 2}, {"rank", 0}, {"micro_batch", 0}, {"observed", 0.5}, {"expected", 0.5}, {"misplaced", false}, {"open", true}}));
  EXPECT_EQ(weights[1], (json{{"step", 2}, {"rank", 0}, {"micro_batch", 1}, {"observed", 0.0}, {"expected", 0.5}, {"misplaced", true}, {"open", false}}));
  EXPECT_EQ(weights[2], (json{{"step", 1}, {"rank", 0}, {"micro_batch", 0}, {"observed", 0.0}, {"expected", 0.0}, {"misplaced", true}, {"open", false}}));
}

TEST(a_report, says_of_each_inconclusive_row_why_it_is_one) {
  Report report = report_by_hand();
  report.inconclusive_rows.by_reason = {0, 1, 4, 0};
  const json o = objects_of(shown("json", report)).at(0);
  EXPECT_EQ(o["inconclusive_rows"], 5);
  EXPECT_EQ(o["inconclusive_because"],
            (json{{"rounding", 0}, {"planted overflow", 1}, {"left open by values", 4}, {"beyond the symbolic run", 0}, {"approximated", 0}, {"not finite", 0}}));
  for (const std::string& text : {shown("terminal", report), report::Html().text(report)}) {
    EXPECT_NE(text.find("inconclusive: 1 row of the ledger, in which a planted overflow hides weights"), std::string::npos) << text;
    EXPECT_NE(text.find("inconclusive: 4 rows of the ledger, in which several weights explain the values"), std::string::npos) << text;
    EXPECT_EQ(text.find("rounding hides"), std::string::npos) << text;
  }
}

TEST(a_report, of_a_race_says_which_command_shows_it) {
  Report report = report_by_hand();
  report.findings[0].race = ref::Race{};
  report.findings[0].race->others = 3;
  EXPECT_TRUE(objects_of(shown("json", report)).at(0)["findings"][0]["race"]["command"].is_null());
  report.findings[0].race->schedule_seed = 11;
  report.findings[0].race_command = "gradledger replay a.json --schedule-seed 11";
  const json race = objects_of(shown("json", report)).at(0)["findings"][0]["race"];
  EXPECT_EQ(race["schedule_seed"], 11);
  EXPECT_EQ(race["command"], report.findings[0].race_command);
  EXPECT_NE(shown("terminal", report).find("  and 3 more pairs of operations in the same window\n  values that differ: gradledger replay a.json --schedule-seed 11\n"),
            std::string::npos);
}

TEST(a_report, without_findings_is_clean_only_where_something_was_judged) {
  Report report = report_by_hand();
  EXPECT_EQ(report.outcome(), Outcome::findings);
  report.findings.clear();
  EXPECT_EQ(report.outcome(), Outcome::clean);
  report.coverage.nothing = "no step()";
  EXPECT_EQ(report.outcome(), Outcome::nothing_judged);
  EXPECT_EQ(objects_of(shown("json", report)).at(0)["verdict"], "nothing judged");
  EXPECT_NE(shown("terminal", report).find("nothing judged: no step()\n"), std::string::npos);
}

TEST(a_report, with_bytes_that_are_no_text_is_still_json) {
  Report report = report_by_hand();
  report.file = "a\xff.json";
  EXPECT_EQ(objects_of(shown("json", report)).at(0)["file"], "a\xef\xbf\xbd.json");
}

}  // namespace
}  // namespace gradledger::testing
