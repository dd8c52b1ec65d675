// Reports for other programs beside the text, and the script of a pipeline that compares two states.
#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

TEST(result_files, are_written_beside_the_text_all_at_once) {
  const TemporaryFolder folder;
  const std::string junit = folder.path() / "j.xml", sarif = folder.path() / "s.json", tap = folder.path() / "t.tap";
  const Outcome outcome = run({"replay", "--summary", leaking_scenario, clean_scenario, "--junit", junit, "--sarif", sarif, "--tap", tap});
  EXPECT_EQ(outcome.code, tool::findings);
  EXPECT_NE(outcome.out.find("boundary-leak: in step 0"), std::string::npos);
  EXPECT_NE(text_of(junit).find("<testsuite name=\"gradledger replay\" tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"0\""), std::string::npos) << text_of(junit);
  EXPECT_EQ(json_of(text_of(sarif))["runs"][0]["results"][0]["ruleId"], "boundary-leak");
  EXPECT_TRUE(text_of(tap).starts_with("TAP version 14\n1..2\n")) << text_of(tap);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 3) << "and nothing else is left";
}

TEST(result_files, take_the_place_of_the_text_on_standard_output) {
  const Outcome outcome = run({"gate", clean_scenario, "--sarif", "-"});
  EXPECT_EQ(outcome.code, tool::clean);
  EXPECT_EQ(json_of(outcome.out)["version"], "2.1.0");
  expect_complaint(run({"gate", clean_scenario, "--sarif", "-", "--tap", "-"}), tool::bad_input, "--tap: goes to standard output, as --sarif does");
  expect_complaint(run({"gate", clean_scenario, "--sarif", "-", "--json"}), tool::bad_input, "--sarif: goes to standard output, and so does what --json");
}

TEST(result_files, that_cannot_be_written_are_refused_before_the_run) {
  const TemporaryFolder folder;
  expect_complaint(run({"gate", clean_scenario, "--junit", folder.path()}), tool::bad_input, "is a directory; expected a file");
  expect_complaint(run({"gate", clean_scenario, "--junit", folder.path() / "none/j.xml"}), tool::bad_input, "lies in no folder that is there");
  const std::string both = folder.path() / "x";
  expect_complaint(run({"gate", clean_scenario, "--junit", both, "--tap", both}), tool::bad_input, "--tap: names the file of --junit");
}

TEST(result_files, never_take_the_place_of_a_scenario) {
  const TemporaryFolder folder;
  const std::string scenario = folder.write("a.json", text_of(leaking_scenario)), before = text_of(scenario);
  const Outcome outcome = run({"replay", "--summary", scenario, "--sarif", scenario});
  EXPECT_EQ(outcome.code, tool::bad_input);
  EXPECT_NE(outcome.err.find("is a scenario of this run; expected another file"), std::string::npos) << outcome.err;
  EXPECT_EQ(text_of(scenario), before);
}

TEST(result_files, have_a_file_that_is_no_scenario_as_an_error_with_its_place) {
  const TemporaryFolder folder;
  const std::string bad = folder.write("bad.json", R"({
  "name": 1, "world_size": 1, "parameters": [{"name": "w", "numel": 4}], "engine": {"framework": "deepspeed", "config": {}}, "script": [{"backward": {}}, {"step": {}}]})"),
                    sarif = folder.path() / "s.sarif", junit = folder.path() / "j.xml";
  for (const char* verb : {"gate", "replay"}) {
    EXPECT_EQ(run({verb, bad, "--sarif", sarif, "--junit", junit}).code, tool::bad_input);
    const json results = json_of(text_of(sarif))["runs"][0]["results"];
    ASSERT_EQ(results.size(), 1u) << verb;
    EXPECT_EQ(results[0]["ruleId"], "bad-scenario");
    EXPECT_EQ(results[0]["locations"][0]["physicalLocation"]["region"]["startLine"], 2);
    EXPECT_EQ(results[0]["properties"]["pointer"], "/name");
    EXPECT_NE(text_of(junit).find("tests=\"1\" failures=\"0\" errors=\"1\""), std::string::npos) << text_of(junit);
  }
}

TEST(result_files, of_a_run_that_ends_early_say_so) {
  const TemporaryFolder folder;
  const std::string junit = folder.path() / "j.xml";
  EXPECT_EQ(run({"gate", folder.path() / "missing", "--junit", junit}).code, tool::bad_input);
  EXPECT_NE(text_of(junit).find("ended with exit code 2"), std::string::npos) << text_of(junit);
}

TEST(annotations, are_the_only_commands_that_the_runner_sees) {
  const TemporaryFolder folder;
  json scenario = json_of(text_of(leaking_scenario));
  scenario.erase("twin_of");
  scenario["name"] = "::set-env name=X::y";
  scenario["expect"] = {{"findings", json::array()}};
  folder.write("a.json", scenario.dump());
  const std::string summary = folder.write("summary.md", "before\n");
  const Outcome outcome = shell("export GITHUB_STEP_SUMMARY=" + summary + "; gradledger gate a.json --github", folder.path());
  EXPECT_EQ(outcome.code, tool::findings);
  const std::vector<std::string> lines = lines_of(outcome.out);
  const std::string stop = "::stop-commands::";
  ASSERT_TRUE(lines.front().starts_with(stop)) << outcome.out;
  const auto resumed = std::find(lines.begin(), lines.end(), "::" + lines.front().substr(stop.size()) + "::");
  ASSERT_NE(resumed, lines.end());
  ASSERT_NE(resumed + 1, lines.end());
  for (auto line = resumed + 1; line != lines.end(); ++line) EXPECT_TRUE(line->starts_with("::error file=a.json,line=1,")) << *line;
  EXPECT_TRUE(text_of(summary).starts_with("before\n### gradledger gate\n\n0 passed, 1 failed")) << text_of(summary);
}

// ---- ci/ ------------------------------------------------------------------------------------------------------------------------------

std::string row(const std::string& scenario, bool passed, const json& more = json::object()) {
  json out{{"record", "gate"}, {"scenario", scenario}, {"passed", passed}, {"problems", json::array()}};
  out.update(more);
  return out.dump() + "\n";
}

json with_rule(const char* rule) { return {{"problems", {{{"rule", rule}, {"text", "text"}}}}}; }

Outcome compared(const std::string& base, const std::string& head) {
  const TemporaryFolder folder;
  return shell((source_folder / "ci/gate-compare").string() + " " + folder.write("base", base).string() + " " + folder.write("head", head).string());
}

TEST(gate_compare, fails_where_the_head_is_worse) {
  for (const auto& [base, head, worse] :
       {std::tuple{row("a", true), row("a", true), false}, std::tuple{row("a", true), row("a", false), true}, std::tuple{row("a", false), row("a", true), false},
        std::tuple{row("a", false, with_rule("x")), row("a", false, with_rule("x")), false}, std::tuple{row("a", false, with_rule("x")), row("a", false, with_rule("y")), true},
        std::tuple{row("a", true), row("a", true) + row("b", false), true}, std::tuple{row("a", true) + row("b", true), row("a", true), true},
        std::tuple{row("a", true), row("a", true, {{"not_run", "cannot"}}), true}, std::tuple{row("a", false), row("a", false, {{"error", "broken run"}}), true}}) {
    const Outcome outcome = compared(base, head);
    EXPECT_EQ(outcome.code, worse ? 1 : 0) << base << head << outcome.out << outcome.err;
    EXPECT_EQ(outcome.out.find("WORSE") != std::string::npos, worse);
  }
}

TEST(gate_compare, refuses_what_no_gate_printed) {
  EXPECT_EQ(compared(row("a", true), "").code, 2);
  EXPECT_EQ(compared(row("a", true), "{").code, 2);
  EXPECT_EQ(compared("[]\n", row("a", true)).code, 2);
}

}  // namespace
}  // namespace gradledger::testing
