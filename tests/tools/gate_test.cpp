// The gate passes what is as expected, and nothing else.
#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

json leak_named(const std::string& name) {
  json out = json_of(text_of(leaking_scenario));
  out.erase("twin_of");
  out["name"] = name;
  out["expect"] = {{"findings", {{{"class", "boundary-leak"}}}}};
  return out;
}

TEST(gate, passes_what_is_as_expected) {
  const TemporaryFolder folder;
  folder.write("a.json", leak_named("a").dump());
  const Outcome outcome = run({"gate", folder.path()});
  EXPECT_EQ(outcome.code, tool::clean) << outcome.out;
  EXPECT_EQ(lines_of(outcome.out).back(), "1 passed, 0 failed");
  EXPECT_EQ(outcome.err, "");
}

TEST(gate, and_a_replay_say_what_a_release_that_is_not_known_is_taken_as) {
  const TemporaryFolder folder;
  json scenario = leak_named("a");
  scenario["engine"]["as_of"] = "0.99.0";
  const std::string file = folder.write("a.json", scenario.dump());
  for (const char* verb : {"gate", "replay"}) {
    const Outcome outcome = run({verb, file});
    EXPECT_NE(outcome.err.find(file + ":1:"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find(": /engine/as_of: 0.99.0 is newer than every release that is known; taken as the newest of them, 0.19.8\n"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.code, tool::bad_input) << verb;
  }
}

TEST(gate, fails_on_a_finding_that_is_not_expected_and_on_one_that_is_not_reported) {
  const TemporaryFolder folder;
  json scenario = leak_named("a");
  scenario["expect"]["findings"] = json::array();
  const Outcome surplus = run({"gate", folder.write("a.json", scenario.dump())});
  EXPECT_EQ(surplus.code, tool::findings);
  EXPECT_NE(surplus.out.find("not expected: "), std::string::npos) << surplus.out;
  EXPECT_EQ(lines_of(surplus.out).back(), "0 passed, 1 failed");
  scenario["expect"]["findings"] = {{{"class", "boundary-leak"}}, {{"class", "stale-gradient"}}};
  const Outcome missing = run({"gate", folder.write("a.json", scenario.dump())});
  EXPECT_EQ(missing.code, tool::findings);
  EXPECT_NE(missing.out.find("expected and not reported: stale-gradient"), std::string::npos) << missing.out;
}

TEST(gate, says_not_available_where_it_is_the_twin_that_does_not_fit) {
  const TemporaryFolder folder;
  json scenario = leak_named("a"), large = leak_named("b");
  scenario["twin_of"] = "b.json";
  large["parameters"][0]["numel"] = 1'000'000;
  folder.write("b.json", large.dump());
  const Outcome outcome = run({"gate", folder.write("a.json", scenario.dump()), "--memory-limit", "1mb", "--executor", "numeric"});
  EXPECT_EQ(outcome.code, tool::unavailable) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find(": /twin_of: "), std::string::npos) << outcome.out;
}

TEST(gate, fails_where_the_outcome_differs_in_a_single_figure) {
  const TemporaryFolder folder;
  const auto gate = [&](const json& expect) {
    json scenario = leak_named("a");
    scenario["expect"].merge_patch(expect);
    return run({"gate", folder.write("a.json", scenario.dump())});
  };
  EXPECT_EQ(gate({{"findings", {{{"class", "boundary-leak"}, {"peer", 0}}}}}).code, tool::clean);
  EXPECT_EQ(gate({{"findings", {{{"class", "boundary-leak"}, {"peer", "1/16"}}}}}).code, tool::findings);
  EXPECT_EQ(gate({{"collectives", {{"gradient", {{"per_step", 1}}}}}}).code, tool::clean);
  EXPECT_EQ(gate({{"collectives", {{"gradient", {{"per_step", 2}}}}}}).code, tool::findings);
  EXPECT_EQ(gate({{"collectives", {{"gradient", {{"at_most_per_step", 0}}}}}}).code, tool::findings);
  EXPECT_EQ(gate({{"collectives", {{"gradient", {{"at_most_per_step", 1}}}}}}).code, tool::clean);
  // Four ranks, two micro-batches: the last one of each rank is at 1/2 there, and the 1/8 of each of three peers is missing.
  const auto leak = [&](const char* key, const json& value) { return gate({{"findings", {{{"class", "boundary-leak"}, {key, value}}}}}).code; };
  EXPECT_EQ(leak("own", "1/2"), tool::clean);
  EXPECT_EQ(leak("own", "1/4"), tool::findings);
  EXPECT_EQ(leak("lost_weight", "3/8"), tool::clean);
  EXPECT_EQ(leak("lost_weight", "1/2"), tool::findings);
  EXPECT_EQ(leak("contributions", "micro_batch == last"), tool::clean);
  EXPECT_EQ(leak("contributions", "micro_batch == 0"), tool::findings);
  EXPECT_EQ(leak("contributions", "micro_batch == last and rank == 0"), tool::findings) << "the others' are miscounted too";
  EXPECT_EQ(gate({{"not_allocated", {"accumulated_grads_in_cpu"}}}).code, tool::clean);
  EXPECT_EQ(gate({{"not_allocated", {"fp32_groups_gradients_flat"}}}).code, tool::findings);
}

TEST(gate, fails_where_exact_values_differ) {
  const TemporaryFolder folder;
  json scenario = json_of(text_of(source_folder / "scenarios/deepspeed-7985/golden-vector.json"));
  scenario.erase("twin_of");
  EXPECT_EQ(run({"gate", folder.write("a.json", scenario.dump())}).code, tool::clean);
  scenario["expect"]["values"][0]["values"][3] = 3.25;
  const Outcome outcome = run({"gate", folder.write("a.json", scenario.dump())});
  EXPECT_EQ(outcome.code, tool::findings);
  EXPECT_NE(outcome.out.find("expected [0.5, 1.5, 2.5, 3.25], holds [0.5, 1.5, 2.5, 3.5]"), std::string::npos) << outcome.out;
}

// The finding is there, but not in every window for which the condition asks.
TEST(gate, fails_where_a_window_has_not_the_finding_that_its_condition_names) {
  const TemporaryFolder folder;
  json scenario = json_of(text_of(source_folder / "scenarios/open-instruct-1498/stage-2-discards.json"));
  scenario.erase("twin_of");
  scenario["script"] = json_of(R"([{"backward": {}}, {"step": {}}, {"backward": {"micro_batches": 2}}, {"step": {}}])");
  const auto gate = [&](const char* contributions) {
    scenario["expect"] = {{"findings", {{{"class", "discarded-gradient"}, {"contributions", contributions}}}}};
    return run({"gate", folder.write("a.json", scenario.dump())});
  };
  EXPECT_EQ(gate("step == 1 and micro_batch == 0").code, tool::clean);
  const Outcome outcome = gate("micro_batch == 0");
  EXPECT_EQ(outcome.code, tool::findings);
  EXPECT_NE(outcome.out.find("expected and not reported: discarded-gradient of micro-batch 0 of rank 0 in step 0"), std::string::npos) << outcome.out;
}

TEST(gate, fails_where_applied_gradients_agree_that_were_expected_to_differ) {
  const TemporaryFolder folder;
  folder.write("b.json", leak_named("b").dump());
  for (const bool agree : {true, false}) {
    json scenario = leak_named("a");
    scenario["expect"]["comparison"] = {{"with", "b.json"}, {"applied", agree ? "agree" : "differ"}};
    const Outcome outcome = run({"gate", folder.write("a.json", scenario.dump())});
    EXPECT_EQ(outcome.code, agree ? tool::clean : tool::findings) << outcome.out;
  }
}

TEST(gate, never_passes_over_nothing) {
  const TemporaryFolder folder;
  expect_complaint(run({"gate", folder.path()}), tool::bad_input, "holds no scenario; a gate over nothing does not pass");
  folder.write("scenario.schema.json", "{}");
  folder.write("values.gradients.json", "[]");
  folder.write("notes.txt", "{}");
  expect_complaint(run({"gate", folder.path()}), tool::bad_input, "holds no scenario");
  expect_complaint(run({"gate", folder.path() / "missing"}), tool::bad_input, "does not exist; expected a scenario file or a folder");
  expect_complaint(run({"gate", ""}), tool::bad_input, "does not exist");
}

TEST(gate, judges_the_others_beside_a_file_that_is_bad_input) {
  const TemporaryFolder folder;
  folder.write("a.json", leak_named("a").dump());
  folder.write("b.json", "{\"name\": 1}");
  const Outcome outcome = run({"gate", folder.path()});
  EXPECT_EQ(outcome.code, tool::bad_input);
  EXPECT_EQ(lines_of(outcome.out).back(), "1 passed, 1 failed");
  EXPECT_NE(outcome.out.find("b.json:1:10: /name: is 1; expected a string"), std::string::npos) << outcome.out;
}

TEST(gate, takes_a_file_named_twice_once_and_a_name_taken_twice_for_a_mismatch) {
  const TemporaryFolder folder;
  const std::string a = folder.write("a.json", leak_named("a").dump());
  EXPECT_EQ(lines_of(run({"gate", a, a, folder.path()}).out).back(), "1 passed, 0 failed");
  folder.write("b.json", leak_named("a").dump());
  const Outcome twice = run({"gate", folder.path()});
  EXPECT_EQ(twice.code, tool::findings);
  EXPECT_NE(twice.out.find("the name is taken by another scenario"), std::string::npos);
}

TEST(gate, refuses_a_comparison_of_a_scenario_with_itself) {
  const TemporaryFolder folder;
  json scenario = leak_named("a");
  for (const char* with : {"a.json", "./a.json", "link.json"}) {
    scenario["expect"]["comparison"] = {{"with", with}, {"applied", "agree"}};
    const std::string path = folder.write("a.json", scenario.dump());
    if (!std::filesystem::exists(folder.path() / "link.json")) std::filesystem::create_symlink("a.json", folder.path() / "link.json");
    const Outcome outcome = run({"gate", path});
    EXPECT_EQ(outcome.code, tool::bad_input);
    EXPECT_NE(outcome.out.find("/expect/comparison/with: names the scenario itself; expected another one"), std::string::npos) << outcome.out;
  }
}

TEST(gate, refuses_a_comparison_of_gradients_that_are_not_the_same) {
  const TemporaryFolder folder;
  json other = leak_named("other"), scenario = leak_named("a");
  other["gradients"] = {{"kind", "probe"}, {"seed", 5}};
  folder.write("other.json", other.dump());
  scenario["expect"]["comparison"] = {{"with", "other.json"}, {"applied", "differ"}};
  const Outcome outcome = run({"gate", folder.write("a.json", scenario.dump())});
  EXPECT_EQ(outcome.code, tool::bad_input);
  EXPECT_NE(outcome.out.find("/expect/comparison/with: names a scenario with gradients of another kind or seed"), std::string::npos) << outcome.out;
}

TEST(gate, refuses_a_twin_that_is_missing_or_the_scenario_itself) {
  const TemporaryFolder folder;
  json scenario = leak_named("a");
  for (const auto& [twin, why] : {std::pair{"none.json", "cannot be read"}, std::pair{"a.json", "names the scenario itself"}}) {
    scenario["twin_of"] = twin;
    const Outcome outcome = run({"gate", folder.write("a.json", scenario.dump())});
    EXPECT_EQ(outcome.code, tool::bad_input);
    EXPECT_NE(outcome.out.find("/twin_of: "), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find(why), std::string::npos) << outcome.out;
  }
}

TEST(gate, names_the_buffers_that_are_shown_where_the_expected_one_is_not) {
  const TemporaryFolder folder;
  json scenario = leak_named("a");
  scenario["expect"]["values"] = {{{"event", 0}, {"rank", 0}, {"buffer", "no_such_buffer"}, {"values", {1}}}};
  const Outcome outcome = run({"gate", folder.write("a.json", scenario.dump())});
  EXPECT_EQ(outcome.code, tool::findings);
  EXPECT_NE(outcome.out.find("no such buffer is shown there, but "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("fp32_groups_gradients_flat[0]"), std::string::npos) << outcome.out;
}

TEST(gate, prints_json_of_the_documented_fields) {
  const TemporaryFolder folder;
  folder.write("a.json", leak_named("a").dump());
  json wrong = leak_named("b");
  wrong["expect"]["findings"] = json::array();
  folder.write("b.json", wrong.dump());
  const Outcome outcome = run({"gate", "--json", folder.path()});
  EXPECT_EQ(outcome.code, tool::findings);
  const std::vector<json> records = testing::records_of(outcome);
  ASSERT_EQ(records.size(), 3u);
  const json &first = records[0], &second = records[1];
  EXPECT_TRUE(first["file"].get<std::string>().ends_with("/a.json")) << first["file"];
  EXPECT_GT(first["seconds"].get<double>(), 0);
  EXPECT_TRUE(first["command"].get<std::string>().starts_with("gradledger replay ")) << first["command"];
  const json said{{"scenario", "a"}, {"passed", true}, {"expected", "boundary-leak"}, {"reported", "boundary-leak"}, {"producer", "host"}, {"seed", 0}};
  for (const auto& [key, value] : said.items()) EXPECT_EQ(first[key], value) << key;
  EXPECT_TRUE(first["problems"].empty());
  ASSERT_FALSE(first["findings"].empty());
  EXPECT_TRUE(first["findings"][0]["sentence"].get<std::string>().starts_with("boundary-leak: in step 0")) << first["findings"][0];
  EXPECT_TRUE(first["findings"][0]["blame"].is_null()) << "nobody looks at what is expected";
  EXPECT_EQ(second["findings"][0]["blame"]["whose"], "framework");
  EXPECT_EQ(second["findings"][0]["known"]["entry"], "catalogue-4");
  EXPECT_EQ(second["findings"][0]["fingerprint"].get<std::string>().size(), 16u);
  EXPECT_EQ(records[2]["counts"]["passed"], 1);
  EXPECT_EQ(records[2]["counts"]["failed"], 1);
  EXPECT_EQ(second["passed"], false);
  EXPECT_EQ(second["expected"], "clean");
  EXPECT_EQ(second["problems"][0]["rule"], "boundary-leak");
  EXPECT_TRUE(second["problems"][0]["pointer"].get<std::string>().starts_with("/script/")) << second["problems"];
  EXPECT_EQ(second["problems"][0]["line"], 1);
}

}  // namespace
}  // namespace gradledger::testing
