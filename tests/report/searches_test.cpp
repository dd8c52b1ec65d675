// What searches found, in each format.
#include "tests/report/made_by_hand.h"

namespace gradledger::testing {
namespace {

using nlohmann::json;

report::FoundRow found(const char* status) {
  report::FoundRow out;
  out.status = status;
  out.finding = "wrong-scale";
  out.engine = "zero1";
  out.shape = "backward step";
  out.blame = {ref::Whose::usage, "single-boundary", "Why."};
  out.sentence = "A sentence.";
  out.file = "findings/a.json";
  return out;
}

TEST(a_campaign, tells_what_is_new_from_what_is_still_there_and_what_is_gone) {
  report::FuzzReport report;
  report.command = "gradledger fuzz --seed 1";
  report.found = {found("still there"), found("gone"), found("new")};
  report.broken = {{17, "it broke", "gradledger fuzz --case 17", {}}};
  report.cases = 100;
  report.canary = 1;
  report.seconds = 2;
  const auto rows_shown = [&](const char* format) {
    std::string out;
    for (const report::FoundRow& row : report.found) out += shown(format, row);
    return out;
  };
  EXPECT_EQ(rows_shown("terminal") + shown("terminal", report),
            "still there  wrong-scale           zero1           backward step, usage (single-boundary)\n"
            "             findings/a.json\n"
            "gone         wrong-scale           findings/a.json\n"
            "new          wrong-scale           zero1           backward step, usage (single-boundary)\n"
            "             A sentence.\n"
            "             findings/a.json\n"
            "internal error in case 17: it broke\n"
            "  draw it again: gradledger fuzz --case 17\n"
            "100 cases, 0 events on 0 rank-events, 0 elements compared; 0 looked wrong, 0 went before the oracle, 0 ran twice alike\n"
            "canary: the fault that must be found was, after 1 case\n"
            "2.0 s, 50 cases a second\n");
  const auto objects = objects_of(rows_shown("json") + shown("json", report));
  ASSERT_EQ(objects.size(), 5u);
  EXPECT_EQ(objects[0]["status"], "still there");
  EXPECT_EQ(objects[1]["status"], "gone");
  EXPECT_EQ(objects[3]["record"], "internal-error");
  EXPECT_EQ(objects[4]["canary_cases"], 1);
}

TEST(a_campaign, whose_canary_was_not_found_or_whose_finding_has_no_file_says_so) {
  report::FuzzReport report;
  report.found = {found("new")};
  report.found[0].file = "";
  report.seconds = 1;
  report.found[0].again = "gradledger fuzz --case 4";
  EXPECT_TRUE(shown("terminal", report.found[0]).ends_with("             not written; draw it again: gradledger fuzz --case 4\n"));
  const std::string text = shown("terminal", report);
  EXPECT_NE(text.find("canary: the fault that must be found was NOT"), std::string::npos);
  EXPECT_TRUE(objects_of(shown("json", report)).at(0)["canary_cases"].is_null());
}

TEST(a_campaign, that_was_ended_says_by_what_and_which_cases_are_left) {
  report::FuzzReport report;
  report.found = {found("new"), found("not taken")};
  report.found[0].alike = 3;
  report.cases = 40;
  report.cases_before = 20;
  report.next = 40;
  report.ended_by = "SIGINT";
  report.seconds = 2;
  EXPECT_NE(shown("terminal", report).find("\nended by SIGINT: the cases from 40 on are left; --resume goes on there\n2.0 s, 10 cases a second\n"), std::string::npos);
  const json campaign = objects_of(shown("json", report)).at(0);
  EXPECT_EQ(campaign["next"], 40);
  EXPECT_EQ(campaign["alike"], json::array({{{"class", "wrong-scale"}, {"engine", "zero1"}, {"shape", "backward step"}, {"alike", 3}}}));
  EXPECT_EQ(shown("terminal", report.found[1]), "not taken    A sentence.\n             findings/a.json\n");
  EXPECT_EQ(objects_of(shown("json", report.found[1])).at(0)["why"], "A sentence.");
}

TEST(a_difference, has_a_file_for_each_side) {
  const report::DifferenceRow row{"0.18.9", "head", 4, "backward step", "They differ.", {"a.json", "b.json"}};
  EXPECT_EQ(shown("terminal", row), "backward step\n  They differ.\n  a.json  b.json\n");
  EXPECT_EQ(objects_of(shown("json", row)).at(0)["files"], json::array({"a.json", "b.json"}));
  report::DifferSummary summary;
  summary.cases = 9;
  summary.compared = 8;
  summary.differing = 7;
  summary.unlike = 1;
  EXPECT_EQ(shown("terminal", summary), "9 cases, 8 compared, 7 differ, 1 of them unlike each other\n");
  report::Summary whole;
  whole.add(summary);
  EXPECT_EQ(objects_of(shown("json", whole)).at(0)["counts"]["differing"], 7);
}

TEST(a_hunt, names_the_defects_that_it_did_not_find) {
  report::HuntRow row;
  row.entry = "catalogue-1";
  row.title = "a defect";
  row.as_of = "0.18.9";
  row.cases = 12;
  row.events_known = 5;
  EXPECT_NE(shown("terminal", row).find("NOT FOUND"), std::string::npos);
  EXPECT_TRUE(shown("terminal", row).ends_with("  a defect\n"));
  row.found = true;
  row.finding = "wrong-scale";
  row.shape = "backward step";
  row.events = 4;
  EXPECT_TRUE(shown("terminal", row).ends_with("wrong-scale               4      5  backward step\n")) << shown("terminal", row);
  EXPECT_EQ(objects_of(shown("json", row)).at(0)["events_known"], 5);
  report::HuntSummary summary{.rows = 3, .found = 2, .of_loops = 0, .events_above_known = 1};
  EXPECT_EQ(shown("terminal", summary), "2 of 3 entries found; scripts are 1 event longer than the shortest known one, in the median\n");
  report::Summary whole;
  whole.add(summary);
  EXPECT_EQ(objects_of(shown("json", whole)).at(0)["counts"]["median_events_above_known"], 1);
}

TEST(an_exploration, says_whether_it_was_complete_and_what_it_found) {
  report::ExploreReport report;
  report.engine = "zero1";
  report.length = 5;
  report.found = {found("")};
  EXPECT_TRUE(shown("terminal", report).starts_with("zero1: NOT complete up to 5 events; "));
  EXPECT_TRUE(shown("terminal", report).ends_with("  wrong-scale           backward step, usage (single-boundary)\n"));
  report.complete = true;
  EXPECT_TRUE(shown("terminal", report).starts_with("zero1: complete up to 5 events; "));
  const auto objects = objects_of(shown("json", report));
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_EQ(objects[0]["engine"], "zero1");
  EXPECT_EQ(objects[1]["complete"], true);
}

TEST(orders_of_streams, are_shown_with_their_races) {
  report::OrdersReport report;
  report.scenario = "s";
  report.agreement = "agree";
  report.every_choice = true;
  report.outcomes = 2;
  report.races.resize(1);
  report.races[0].buffer = "bucket";
  report.races[0].end = 8;
  report.races[0].first.operation = "copy";
  report.races[0].second.operation = "all_reduce";
  report.witnesses = {{1, 2, "0:compute"}};
  const std::string text = shown("terminal", report);
  EXPECT_TRUE(text.starts_with("s: NOT complete: every choice, but not from all values; ")) << text;
  EXPECT_TRUE(text.ends_with("  2 outcomes in memory, 0 in values; 1 race by happens-before: agree\n  race: rank 0, bucket[0:8]: copy and all_reduce\n")) << text;
  const json object = objects_of(shown("json", report)).at(0);
  EXPECT_EQ(object["witnesses"], (json::array({{{"values", "0000000000000001"}, {"memory", "0000000000000002"}, {"order", "0:compute"}}})));
  EXPECT_EQ(object["races"][0]["first"]["operation"], "copy");
  EXPECT_EQ(object["receives_pass"], false);
  EXPECT_EQ(text.find("does not wait here"), std::string::npos);
  report.receives_pass = true;
  EXPECT_NE(shown("terminal", report).find("does not wait here"), std::string::npos);
  EXPECT_EQ(objects_of(shown("json", report)).at(0)["receives_pass"], true);
}

}  // namespace
}  // namespace gradledger::testing
