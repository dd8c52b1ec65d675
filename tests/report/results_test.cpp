// Results of a run for other programs: held against the published schemas, whatever is in their texts.
#include <cstdlib>
#include <fstream>

#include "report/results.h"
#include "tests/report/made_by_hand.h"
#include "tests/support/schema_check.h"
#include "tests/support/temporary_folder.h"

namespace gradledger::testing {
namespace {

using nlohmann::json;
using report::CaseResult;
using report::Problem;
using report::Results;
using report::Status;

const std::string schemas = std::string(GRADLEDGER_SOURCE_DIR) + "/tests/schemas/";
// Ends of lines, an escape character, marks of every format, what is no UTF-8, and the end of a JUnit text.
const std::string hostile = "a::error::b%0A,c:d\n::set-output name=x::y\r]]>&<\"'\x1b[31m|`#\\\xff\xc3\xef\xbf\xbf";

CaseResult case_by_hand(const std::string& name, Status status, const std::string& text = "") {
  CaseResult out;
  out.name = name;
  out.file = "folder/" + name + ".json";
  out.status = status;
  out.engine = "zero2";
  out.seconds = 1.5;
  if (status == Status::failed) {
    out.problems.emplace_back(text, "wrong-scale", "/script/1", "grads");
    out.problems.back().at = {3, 5};
  } else out.why = text;
  return out;
}

Results results_by_hand(const std::string& text) {
  Results out;
  out.tool = no_program;
  out.command = "gradledger gate " + text;
  out.verb = "gate";
  out.producer = "host";
  out.seed = 7;
  out.cases = {case_by_hand("good", Status::passed), case_by_hand("bad" + text, Status::failed, text), case_by_hand("broken", Status::error, text),
               case_by_hand("left", Status::not_run, text), report::error_case("x", "x" + text, {{"x" + text + ":4:2: /name", "is 1" + text}})};
  return out;
}

std::string errors_by_schema(const std::string& log) {
  std::ifstream stream(schemas + "sarif-2.1.0.json");
  return SchemaCheck(json::parse(stream), valijson::SchemaParser::kDraft4).errors(json::parse(log));
}

// What xmllint says of it; empty where it fits.
std::string errors_by_xsd(const std::string& text) {
  const TemporaryFolder folder;
  const std::string file = folder.write("report.xml", text), said = folder.path() / "said";
  const int code = std::system((std::string(GRADLEDGER_XMLLINT) + " --noout --schema '" + schemas + "junit-10.xsd' '" + file + "' 2>'" + said + "'").c_str());
  std::ostringstream out;
  out << std::ifstream(said).rdbuf();
  return code == 0 ? "" : out.str() + "exit status " + std::to_string(code);
}

TEST(results_as_junit, fit_the_schema_whatever_their_texts_hold) {
  for (const std::string& text : {std::string("plain"), hostile, std::string("\0\1\x1f", 3)}) EXPECT_EQ(errors_by_xsd(report::junit(results_by_hand(text))), "");
  EXPECT_NE(errors_by_xsd("<testsuites><testcase/></testsuites>"), "") << "the schema is looked at";
}

TEST(results_as_junit, count_each_outcome_and_say_why) {
  const std::string text = report::junit(results_by_hand("why & how"));
  for (const char* part : {"tests=\"5\" failures=\"1\" errors=\"2\" skipped=\"1\" time=\"6.000\"", "<testcase name=\"good\" classname=\"folder\" time=\"1.500\">",
                           "<failure message=\"why &amp; how\" type=\"wrong-scale\">folder/badwhy &amp; how.json:3:5: why &amp; how", "<skipped message=\"why &amp; how\"",
                           "<error message=\"why &amp; how\" type=\"broken-run\">", "<property name=\"seed\" value=\"7\" />"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(results_as_sarif, fit_the_schema_whatever_their_texts_hold) {
  for (const std::string& text : {std::string("plain"), hostile}) EXPECT_EQ(errors_by_schema(report::sarif(results_by_hand(text))), "");
  json wrong = json::parse(report::sarif(results_by_hand("")));
  wrong["runs"][0]["results"][0]["level"] = "dreadful";
  EXPECT_NE(errors_by_schema(wrong.dump()), "") << "the schema is looked at";
}

TEST(results_as_sarif, name_rule_file_line_and_column) {
  const json run = json::parse(report::sarif(results_by_hand("")))["runs"][0];
  ASSERT_EQ(run["results"].size(), 2u);
  const json& result = run["results"][0];
  EXPECT_EQ(result["ruleId"], "wrong-scale");
  EXPECT_EQ(run["tool"]["driver"]["rules"][result["ruleIndex"].get<std::size_t>()]["id"], "wrong-scale");
  const json& place = result["locations"][0]["physicalLocation"];
  EXPECT_EQ(place["artifactLocation"]["uri"], "folder/bad.json");
  EXPECT_EQ(place["region"], (json{{"startLine", 3}, {"startColumn", 5}}));
  EXPECT_EQ(run["results"][1]["ruleId"], "bad-scenario");
  EXPECT_EQ(run["results"][1]["locations"][0]["physicalLocation"]["region"]["startLine"], 4);
  EXPECT_EQ(run["invocations"][0]["executionSuccessful"], false);
  EXPECT_EQ(run["invocations"][0]["toolExecutionNotifications"].size(), 2u);
  for (const ref::FindingClassInfo& info : ref::finding_classes())
    EXPECT_NE(run["tool"]["driver"]["rules"].dump().find("\"id\":\"" + std::string(info.name) + "\""), std::string::npos) << info.name;
}

TEST(results_as_sarif, keep_their_fingerprints_where_scenarios_and_lines_move) {
  Results before = results_by_hand(""), after = before;
  before.cases[1].identity = after.cases[1].identity = "0123";
  std::swap(after.cases[0], after.cases[1]);
  after.cases[0].problems[0].at = {99, 1};
  after.cases[0].problems[0].pointer = "/script/7";
  const auto prints = [](const Results& results) { return json::parse(report::sarif(results))["runs"][0]["results"][0]["partialFingerprints"]; };
  EXPECT_EQ(prints(before), prints(after));
  EXPECT_EQ(prints(before).size(), 2u);
  after.cases[0].problems[0].rule = "boundary-leak";
  EXPECT_NE(prints(before)["scenarioName/v1"], prints(after)["scenarioName/v1"]);
  EXPECT_NE(prints(before)["scenarioContent/v1"], prints(after)["scenarioContent/v1"]);
}

TEST(results_as_sarif, count_findings_that_are_alike) {
  Results results = results_by_hand("");
  results.cases[1].problems.push_back(results.cases[1].problems[0]);
  const json found = json::parse(report::sarif(results))["runs"][0]["results"];
  EXPECT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0]["occurrenceCount"], 2);
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) out.push_back(line);
  return out;
}

TEST(results_as_tap, have_a_plan_and_a_point_each) {
  const std::vector<std::string> all = lines(report::tap(results_by_hand("no #1")));
  ASSERT_GT(all.size(), 5u);
  EXPECT_EQ(all[0], "TAP version 14");
  EXPECT_EQ(all[1], "1..5");
  EXPECT_EQ(all[3], "ok 1 - good");
  EXPECT_EQ(all[4], "not ok 2 - badno \\#1");
  EXPECT_EQ(all[5], "  ---");
  EXPECT_NE(std::find(all.begin(), all.end(), "ok 4 - left # SKIP no \\#1"), all.end());
}

TEST(results_as_tap, stay_on_their_lines_whatever_their_texts_hold) {
  const std::vector<std::string> plain = lines(report::tap(results_by_hand("plain"))), other = lines(report::tap(results_by_hand(hostile)));
  ASSERT_EQ(plain.size(), other.size());
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(plain[i].substr(0, 4), other[i].substr(0, 4)) << other[i];
}

TEST(results_for_github, are_a_command_a_line_whatever_their_texts_hold) {
  const std::vector<std::string> all = lines(report::github_annotations(results_by_hand(hostile)));
  ASSERT_EQ(all.size(), 3u);
  for (const std::string& line : all) EXPECT_TRUE(line.starts_with("::error ")) << line;
  EXPECT_NE(all[0].find("file=folder/bada%3A%3Aerror%3A%3Ab%250A%2Cc%3Ad%0A"), std::string::npos) << all[0];
  EXPECT_NE(all[0].find(",line=3,col=5,title="), std::string::npos) << all[0];
  EXPECT_EQ(all[0].find('\r'), std::string::npos);
}

TEST(results_for_github, are_nine_and_one_that_counts_the_rest) {
  Results results = results_by_hand("");
  results.cases.assign(9, case_by_hand("bad", Status::failed, "twice"));
  EXPECT_EQ(lines(report::github_annotations(results)).size(), 9u);
  results.cases.push_back(results.cases[0]);
  results.cases.push_back(results.cases[0]);
  const std::vector<std::string> all = lines(report::github_annotations(results));
  ASSERT_EQ(all.size(), 10u);
  EXPECT_TRUE(all.back().starts_with("::error title=gradledger::and 2 more problems")) << all.back();
}

TEST(results_for_github, are_summed_up_in_a_table_without_markup_of_their_own) {
  const std::string text = report::github_summary(results_by_hand("<b>|`x`\ny"));
  EXPECT_NE(text.find("1 passed, 1 failed, 2 errors, 1 not run"), std::string::npos) << text;
  EXPECT_NE(text.find("| failed | bad\\<b\\>\\|\\`x\\`\\\\ny | "), std::string::npos) << text;
  EXPECT_LT(report::github_summary(results_by_hand(std::string(1 << 20, 'x'))).size(), 1u << 16);
}

TEST(a_row_of_a_gate, is_a_case) {
  report::GateRow row;
  row.scenario = "s";
  EXPECT_EQ(report::case_of(row).status, Status::passed);
  row.not_run = "not here";
  EXPECT_EQ(report::case_of(row).status, Status::not_run);
  row.not_run = "";
  row.unmet = {Problem("wrong")};
  EXPECT_EQ(report::case_of(row).status, Status::failed);
  row.broken = true;
  EXPECT_EQ(report::case_of(row).status, Status::error);
  EXPECT_EQ(report::case_of(row).why, "wrong");
}

TEST(a_replay, is_a_case_with_a_problem_a_finding) {
  const CaseResult result = report::case_of(report_by_hand());
  EXPECT_EQ(result.status, Status::failed);
  ASSERT_EQ(result.problems.size(), 1u);
  EXPECT_EQ(result.problems[0].rule, "discarded-gradient");
  EXPECT_EQ(result.problems[0].pointer, "/script/1");
}

TEST(results, of_a_campaign_tell_what_was_not_taken_from_what_is_gone) {
  report::FuzzReport campaign;
  campaign.canary = 1;
  campaign.found = {{.status = "gone", .finding = "wrong-scale"}, {.status = "not taken", .sentence = "It has no such engine.", .file = "a.json"}};
  const std::vector<CaseResult> cases = report::cases_of(campaign);
  ASSERT_EQ(cases.size(), 3u);
  EXPECT_EQ(cases[0].status, Status::passed);
  EXPECT_EQ(cases[1].status, Status::not_run);
  EXPECT_EQ(cases[1].name, "a.json");
  EXPECT_EQ(cases[1].why, "It has no such engine.");
  EXPECT_EQ(cases[2].status, Status::passed);
}

}  // namespace
}  // namespace gradledger::testing
