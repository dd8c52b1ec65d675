// Which scenarios a gate is held over, for how long, and what it knows already.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "tests/support/sanitized.h"
#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

namespace fs = std::filesystem;

// A loop that is right, or one of which a class is expected that it does not show.
std::string deepspeed_loop(const std::string& name, const std::string& expected = "") {
  json out =
      json_of(R"({"world_size": 2, "parameters": [{"name": "w", "numel": 64}], "engine": {"framework": "deepspeed", "config": {}}, "script": [{"backward": {}}, {"step": {}}]})");
  out["name"] = name;
  if (!expected.empty()) out["expect"]["findings"] = {{{"class", expected}}};
  return out.dump();
}

json leak(const std::string& name) {
  json out = json_of(text_of(testing::leaking_scenario));
  out.erase("twin_of");
  out["name"] = name;
  out["expect"] = {{"findings", json::array()}};
  return out;
}

std::set<std::string> names_in(const Outcome& outcome) {
  std::set<std::string> out;
  for (const json& record : testing::records_of(outcome))
    if (record["record"] == "gate") out.insert(record["scenario"].get<std::string>());
  return out;
}

Outcome gate(const fs::path& path, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"gate", path});
  return run(std::move(more));
}

TEST(a_gate_over_a_folder, says_what_it_left_out_and_does_not_pass) {
  const TemporaryFolder folder, elsewhere;
  folder.write("a.json", deepspeed_loop("a"));
  folder.write("b.JSON", deepspeed_loop("b"));
  elsewhere.write("c.json", deepspeed_loop("c"));
  fs::create_symlink("nowhere", folder.path() / "dangling.json");
  fs::create_directory_symlink(elsewhere.path(), folder.path() / "linked");
  fs::create_symlink(elsewhere.path() / "c.json", folder.path() / "c.json");
  ASSERT_EQ(mkfifo((folder.path() / "pipe.json").c_str(), 0600), 0);
  const Outcome outcome = gate(folder.path());
  EXPECT_EQ(outcome.code, tool::bad_input);
  EXPECT_EQ(lines_of(outcome.out).back(), "2 passed, 0 failed, 4 left out") << "a link to a file is followed";
  const auto told = [&](const std::string& name, const std::string& why) {
    EXPECT_NE(outcome.err.find((folder.path() / name).string() + ": left out: " + why), std::string::npos) << outcome.err;
  };
  told("b.JSON", "does not end in .json");
  told("dangling.json", "is a link that leads nowhere");
  told("linked", "is a link to a folder");
  told("pipe.json", "is a device, a pipe or a socket");
  EXPECT_NE(outcome.err.find("what is left out fails the gate"), std::string::npos);
  const Outcome allowed = gate(folder.path(), {"--allow-left-out"});
  EXPECT_EQ(allowed.code, tool::clean);
  EXPECT_EQ(lines_of(allowed.err).size(), 4u) << "told all the same";
}

TEST(a_gate_over_a_folder, of_which_a_part_cannot_be_read_judges_the_rest_and_does_not_pass) {
  if (geteuid() == 0 && !fs::exists("/usr/bin/setpriv")) GTEST_SKIP() << "nothing is unreadable to this user";
  const TemporaryFolder folder;
  folder.write("a.json", deepspeed_loop("a"));
  fs::create_directory(folder.path() / "closed");
  fs::permissions(folder.path(), fs::perms(0755));
  fs::permissions(folder.path() / "closed", fs::perms::none);
  const std::string as_somebody = geteuid() == 0 ? "setpriv --reuid=65534 --clear-groups " : "";
  const Outcome outcome = shell(as_somebody + "\"$(command -v gradledger)\" gate '" + folder.path().string() + "'");
  if (outcome.code == 126 || outcome.code == 127) GTEST_SKIP() << "somebody else may not run the command here";
  EXPECT_EQ(outcome.code, tool::bad_input) << outcome.err;
  EXPECT_NE(outcome.err.find("closed: left out: cannot be searched: Permission denied"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.out.find("1 passed, 0 failed, 1 left out"), std::string::npos) << outcome.out;
}

TEST(an_expression, chooses_scenarios_by_file_and_by_name) {
  const TemporaryFolder folder;
  folder.write("zero1-plain.json", deepspeed_loop("first"));
  folder.write("zero2-plain.json", deepspeed_loop("second"));
  folder.write("zero2-offload.json", deepspeed_loop("Third"));
  const auto chosen = [&](const char* expression) { return names_in(gate(folder.path(), {"--json", "-k", expression})); };
  EXPECT_EQ(chosen("zero2"), (std::set<std::string>{"second", "Third"}));
  EXPECT_EQ(chosen("third"), (std::set<std::string>{"Third"})) << "capitals do not matter";
  EXPECT_EQ(chosen("zero2 and not offload"), (std::set<std::string>{"second"}));
  EXPECT_EQ(chosen("first or zero2 and offload"), (std::set<std::string>{"first", "Third"})) << "and binds more than or";
  EXPECT_EQ(chosen("(first or zero2) and offload"), (std::set<std::string>{"Third"}));
  EXPECT_EQ(chosen("not(first)"), (std::set<std::string>{"second", "Third"}));
  expect_complaint(gate(folder.path(), {"-k", "zero9"}), tool::bad_input, "-k: leaves none of 3 scenarios");
  for (const char* wrong : {"and", "a or", "(a", "a)", "a b", "not", "()"}) expect_complaint(gate(folder.path(), {"-k", wrong}), tool::bad_input, "-k: ");
  EXPECT_EQ(lines_of(gate(folder.path(), {"-k", "zero1"}).out).back(), "1 passed, 0 failed, 2 not selected");
}

TEST(a_gate, ends_at_the_first_failure_where_it_is_asked_to) {
  const TemporaryFolder folder;
  folder.write("a.json", deepspeed_loop("a"));
  folder.write("b.json", deepspeed_loop("b", "wrong-scale"));
  folder.write("c.json", deepspeed_loop("c"));
  const Outcome outcome = gate(folder.path(), {"-x"});
  EXPECT_EQ(outcome.code, tool::findings);
  EXPECT_TRUE(outcome.out.ends_with("ended by -x\n1 passed, 1 failed, 1 not run\n")) << outcome.out;
  EXPECT_EQ(gate(folder.path(), {"-x", "--jobs", "3"}).out, outcome.out);
}

TEST(shards, of_a_gate_run_everything_once) {
  const TemporaryFolder folder;
  std::set<std::string> all;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g"}) {
    folder.write(std::string(name) + ".json", deepspeed_loop(name));
    all.insert(name);
  }
  std::set<std::string> seen;
  std::size_t together = 0;
  for (const char* shard : {"0/3", "1/3", "2/3"}) {
    const auto part = names_in(gate(folder.path(), {"--json", "--shard", shard}));
    EXPECT_TRUE(part.size() == 2 || part.size() == 3) << part.size();
    together += part.size();
    seen.insert(part.begin(), part.end());
  }
  EXPECT_EQ(together, all.size());
  EXPECT_EQ(seen, all);
  // By what the files hold: another folder changes nothing.
  const auto before = names_in(gate(folder.path(), {"--json", "--shard", "1/3"}));
  const TemporaryFolder moved;
  for (const std::string& name : all) fs::copy(folder.path() / (name + ".json"), moved.path() / ("renamed-" + name + ".json"));
  EXPECT_EQ(names_in(gate(moved.path(), {"--json", "--shard", "1/3"})), before);
  expect_complaint(gate(folder.path(), {"--shard", "3/3"}), tool::bad_input, "--shard: \"3/3\" is no shard");
  expect_complaint(gate(folder.path(), {"--shard", "9/10"}), tool::bad_input, "--shard: leaves none of 7 scenarios");
}

TEST(shards, see_that_a_name_is_there_twice_in_another_one) {
  const TemporaryFolder folder;
  for (const char* name : {"a", "b", "c", "d"}) folder.write(std::string(name) + ".json", deepspeed_loop("the same") + std::string(static_cast<std::size_t>(name[0] - 'a'), '\n'));
  std::size_t failed = 0;
  for (const char* shard : {"0/2", "1/2"}) failed += testing::summary_of(gate(folder.path(), {"--json", "--shard", shard}))["counts"]["failed"].get<std::size_t>();
  EXPECT_EQ(failed, 3u) << "all but the first";
}

TEST(threads, change_not_a_byte_of_a_gate) {
  const auto corpus = source_folder / "scenarios/deepspeed-7985";
  for (const char* format : {"terminal", "json"}) {
    const Outcome one = gate(corpus, {"--jobs", "1", "--format", format}), three = gate(corpus, {"--jobs", "3", "--format", format});
    EXPECT_EQ(one.code, tool::clean);
    EXPECT_GT(lines_of(one.out).size(), 3u);
    EXPECT_EQ(testing::without_seconds(one.out), testing::without_seconds(three.out));
    EXPECT_EQ(three.code, one.code);
  }
}

TEST(what_failed_last, is_run_again_until_it_passes) {
  const TemporaryFolder folder;
  folder.write("a.json", deepspeed_loop("a"));
  folder.write("b.json", deepspeed_loop("b", "wrong-scale"));
  folder.write("c.json", deepspeed_loop("c", "wrong-scale"));
  const auto again = [&] { return shell("gradledger gate . --last-failed --json", folder.path()); };
  const auto first = again();
  EXPECT_EQ(first.code, tool::findings) << first.err;
  EXPECT_EQ(names_in(first).size(), 3u) << "nothing is known yet";
  EXPECT_TRUE(fs::exists(folder.path() / ".gradledger/last-failed"));
  EXPECT_EQ(names_in(again()), (std::set<std::string>{"b", "c"}));
  folder.write("b.json", deepspeed_loop("b"));
  EXPECT_EQ(names_in(again()), (std::set<std::string>{"b", "c"}));
  EXPECT_EQ(names_in(again()), (std::set<std::string>{"c"}));
  folder.write("c.json", deepspeed_loop("c"));
  EXPECT_EQ(again().code, tool::clean);
  EXPECT_EQ(names_in(again()).size(), 3u) << "none failed, so all are run";
  const std::string other = "gradledger gate . --last-failed --state '" + (folder.path() / "mine").string() + "'";
  EXPECT_EQ(shell(other, folder.path()).code, tool::clean);
  EXPECT_TRUE(fs::exists(folder.path() / "mine"));
  folder.write("mine", "[]");
  expect_complaint(shell(other, folder.path()), tool::bad_input, "--state: ");
  EXPECT_EQ(shell("gradledger gate . --last-failed --state /dev/full", folder.path()).code, tool::bad_input);
}

TEST(durations, are_told_beside_the_report) {
  const TemporaryFolder folder;
  for (const char* name : {"a", "b", "c"}) folder.write(std::string(name) + ".json", deepspeed_loop(name));
  const Outcome plain = gate(folder.path()), outcome = gate(folder.path(), {"--durations", "2"});
  EXPECT_EQ(outcome.out, plain.out);
  ASSERT_EQ(lines_of(outcome.err).size(), 2u) << outcome.err;
  for (const std::string& line : lines_of(outcome.err)) EXPECT_NE(line.find(" s  " + folder.path().string()), std::string::npos) << line;
}

// So many that no machine judges all of them in a second; those behind the budget cost nothing.
TEST(a_time_budget, that_is_over_does_not_pass_and_says_what_is_left) {
  const TemporaryFolder folder, beside;
  constexpr int scenarios = 120, numel = testing::sanitized ? 8'000 : 60'000;
  for (int i = 0; i < scenarios; ++i) {
    json large = json_of(deepspeed_loop(fmt::format("large-{}", i)));
    large["world_size"] = 8;
    large["parameters"][0]["numel"] = numel;
    large["script"] = json_of(R"([{"backward": {"micro_batches": 4}}, {"step": {}}])");
    folder.write(fmt::format("{}.json", i), large.dump());
  }
  const std::string junit = beside.path() / "j.xml";
  const Outcome outcome = gate(folder.path(), {"--time-budget", "1", "--jobs", "1", "--junit", junit});
  EXPECT_EQ(outcome.code, tool::findings) << outcome.err;
  EXPECT_NE(outcome.out.find("\nended by --time-budget\n"), std::string::npos);
  EXPECT_NE(outcome.err.find("--time-budget: was over with "), std::string::npos) << outcome.err;
  EXPECT_NE(text_of(junit).find("ended by --time-budget, with "), std::string::npos) << "a report for other programs must not look as if all had passed";
}

// ---- accepted findings -------------------------------------------------------------------------------------------------------------

json baseline_of(const std::vector<json>& accepted) { return {{"schema_version", 1}, {"accepted", accepted}}; }

json accepted(const std::string& scenario, const std::string& finding, const std::string& expires) {
  return {{"scenario", scenario}, {"class", finding}, {"reason", "known, see the issue"}, {"expires", expires}};
}

TEST(a_baseline, accepts_a_finding_until_its_day) {
  const TemporaryFolder folder, beside;
  folder.write("a.json", leak("a").dump());
  EXPECT_EQ(gate(folder.path()).code, tool::findings);
  const std::string file = beside.write("baseline.json", baseline_of({accepted("a", "boundary-leak", "2027-01-31")}).dump());
  const auto on = [&](const char* day) { return gate(folder.path(), {"--baseline", file, "--today", day}); };
  const Outcome last_day = on("2027-01-31");
  EXPECT_EQ(last_day.code, tool::clean) << last_day.out;
  EXPECT_NE(last_day.out.find("accepted until 2027-01-31: boundary-leak: known, see the issue"), std::string::npos) << last_day.out;
  const Outcome after = on("2027-02-01");
  EXPECT_EQ(after.code, tool::findings);
  EXPECT_NE(after.out.find("boundary-leak was accepted until 2027-01-31: known, see the issue"), std::string::npos) << after.out;
  const json row = testing::record_of(gate(folder.path(), {"--baseline", file, "--today", "2027-01-01", "--json"}));
  EXPECT_EQ(row["passed"], true);
  EXPECT_EQ(row["accepted"][0]["class"], "boundary-leak");
}

TEST(a_baseline, fails_what_is_new_and_tells_what_vanished) {
  const TemporaryFolder folder, beside;
  folder.write("a.json", leak("a").dump());
  folder.write("b.json", leak("b").dump());
  folder.write("c.json", deepspeed_loop("c"));
  const std::string file = beside.write(
      "baseline.json", baseline_of({accepted("a", "boundary-leak", "2027-01-31"), accepted("c", "wrong-scale", "2027-01-31"), accepted("d", "wrong-scale", "2027-01-31")}).dump());
  const Outcome outcome = gate(folder.path(), {"--baseline", file, "--today", "2026-11-23"});
  EXPECT_EQ(outcome.code, tool::findings) << "b is new";
  EXPECT_NE(outcome.out.find("2 passed, 1 failed"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("accepted and not reported: wrong-scale; take it out of the baseline"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("the baseline names d, which is not among the scenarios"), std::string::npos) << outcome.out;
}

TEST(a_baseline, that_is_not_right_is_refused_with_its_place) {
  const TemporaryFolder folder;
  folder.write("a.json", deepspeed_loop("a"));
  const auto refused = [&](const std::string& text, const std::string& part) {
    const TemporaryFolder beside;
    expect_complaint(gate(folder.path(), {"--baseline", beside.write("b", text)}), tool::bad_input, part);
  };
  refused("", "is not JSON");
  refused("{}", "lacks \"schema_version\"");
  refused(R"({"schema_version": 2, "accepted": []})", "/schema_version: is 2; expected 1");
  refused(R"({"schema_version": 1})", "/accepted: is no array");
  refused(R"({"schema_version": 1, "accepted": [], "more": 1})", "/more: is not a key here");
  refused(R"({"schema_version": 1, "accepted": [7]})", "/accepted/0: is no object");
  refused(baseline_of({accepted("a", "no-class", "2027-01-31")}).dump(), "/accepted/0/class: \"no-class\" is no class of findings");
  for (const char* day : {"soon", "2027-02-29", "2027-13-01", "2027-1-1", "31.01.2027"}) refused(baseline_of({accepted("a", "wrong-scale", day)}).dump(), "/accepted/0/expires: ");
  refused(baseline_of({accepted("a", "wrong-scale", "2028-02-29"), accepted("a", "wrong-scale", "2027-01-31")}).dump(), "/accepted/1: is there twice");
  expect_complaint(gate(folder.path(), {"--baseline", "missing"}), tool::bad_input, "--baseline: missing: ");
  expect_complaint(gate(folder.path(), {"--today", "2027-01-01"}), tool::bad_input, "--today");
}

// ---- files that are brought up to date ---------------------------------------------------------------------------------------------

TEST(an_update, writes_what_is_reported_and_keeps_the_rest_of_the_text) {
  const TemporaryFolder folder;
  const std::string pretty = leak("a").dump(3) + "\n\n";
  const std::string file = folder.write("a.json", pretty);
  fs::permissions(file, fs::perms(0640));
  const Outcome outcome = gate(folder.path(), {"--update"});
  EXPECT_EQ(outcome.code, tool::clean) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("updated: " + file), std::string::npos) << outcome.out;
  std::string expected = pretty;
  const std::string empty = "\"findings\": []";
  expected.replace(expected.find(empty), empty.size(), R"("findings": [{"class": "boundary-leak"}])");
  EXPECT_EQ(text_of(file), expected);
  EXPECT_EQ(fs::status(file).permissions(), fs::perms(0640));
  const Outcome again = gate(folder.path(), {"--update"});
  EXPECT_EQ(again.code, tool::clean);
  EXPECT_EQ(again.out.find("updated"), std::string::npos) << again.out;
}

TEST(an_update, leaves_what_is_right_takes_away_what_is_not_reported_and_adds_what_is_new) {
  const TemporaryFolder folder;
  const auto updated = [&](const json& expect) {
    json scenario = leak("a");
    scenario["expect"] = expect;
    const std::string file = folder.write("a.json", scenario.dump(2));
    EXPECT_EQ(gate(folder.path(), {"--update"}).code, tool::clean);
    return json_of(text_of(file))["expect"]["findings"];
  };
  const json right = {{"class", "boundary-leak"}, {"own", "1/2"}};
  EXPECT_EQ(updated({{"findings", {{{"class", "wrong-scale"}}, right}}}), json::array({right}));
  EXPECT_EQ(updated({{"findings", {{{"class", "boundary-leak"}, {"own", "1/4"}}}}}), json::array({{{"class", "boundary-leak"}}})) << "it says no more than what is so";
  EXPECT_EQ(updated({{"not_allocated", {"accumulated_grads_in_cpu"}}, {"findings", {{{"class", "wrong-scale"}}}}}), json::array({{{"class", "boundary-leak"}}}));
}

TEST(an_update, of_a_file_without_expectations_adds_them) {
  const TemporaryFolder folder;
  json scenario = leak("a");
  scenario.erase("expect");
  const std::string file = folder.write("a.json", scenario.dump(2));
  EXPECT_EQ(gate(folder.path(), {"--update"}).code, tool::clean);
  EXPECT_EQ(json_of(text_of(file))["expect"]["findings"], json::array({{{"class", "boundary-leak"}}}));
  EXPECT_NE(text_of(file).find("\n  \"expect\": {\"findings\": [{\"class\": \"boundary-leak\"}]}\n}"), std::string::npos) << text_of(file);
}

TEST(an_update, says_what_it_cannot_write) {
  const TemporaryFolder folder;
  json scenario = leak("a");
  scenario["expect"]["collectives"] = {{"gradient", {{"per_step", 2}}}};
  folder.write("a.json", scenario.dump(2));
  const Outcome outcome = gate(folder.path(), {"--update"});
  EXPECT_EQ(outcome.code, tool::findings) << "only findings are written";
  EXPECT_NE(outcome.out.find("collectives in step 0, expected 2"), std::string::npos) << outcome.out;
  for (const char* other : {"-x", "--compare", "--baseline"})
    EXPECT_EQ(gate(folder.path(), other == std::string("-x") ? std::vector<std::string>{"--update", other} : std::vector<std::string>{"--update", other, "host,host"}).code,
              tool::bad_input)
        << other;
}

}  // namespace
}  // namespace gradledger::testing
