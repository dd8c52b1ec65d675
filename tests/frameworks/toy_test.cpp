// What CONTRIBUTING.md says of a new framework: one folder, one line of the registry, and the command knows it. gradledger-toy is the command
// with that line; nothing else of it differs.
#include <gtest/gtest.h>

#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

const std::string folder = source_folder / "tests/frameworks/toy/scenarios";

Outcome run_toy(std::vector<std::string> words) {
  words.insert(words.begin(), GRADLEDGER_TOY);
  return run_program(std::move(words));
}

json scenario() { return json::parse(text_of(folder + "/flushed.json")); }

Outcome replay(const json& document) {
  const TemporaryFolder scratch;
  const std::filesystem::path path = scratch.path() / "scenario.json";
  std::ofstream(path) << document.dump();
  return run_toy({"replay", path.string()});
}

TEST(a_new_framework, passes_the_gate_with_its_own_event_and_scenarios) {
  const Outcome gate = run_toy({"gate", folder, "--json"});
  EXPECT_EQ(gate.code, 0) << gate.out << gate.err;
  EXPECT_EQ(std::count(gate.out.begin(), gate.out.end(), '\n'), 3) << gate.out;
}

TEST(a_new_framework, is_told_which_rule_of_its_own_lost_a_gradient) {
  const Outcome lost = run_toy({"replay", folder + "/step-without-flush.json", "--json"});
  EXPECT_EQ(lost.code, tool::findings) << lost.err;
  const json report = testing::record_of(lost);
  ASSERT_FALSE(report["findings"].empty()) << lost.out;
  EXPECT_EQ(report["findings"][0]["blame"]["rule"], "flush-before-step") << lost.out;
}

TEST(a_new_framework, is_listed_with_its_engine_and_buffers) {
  for (const auto& [what, named] : std::vector<std::pair<std::string, std::string>>{{"frameworks", "toy"}, {"engines", "ToyEngine"}, {"buffers", "*.averaged"}})
    EXPECT_NE(run_toy({"list", what}).out.find(named), std::string::npos) << what;
}

TEST(a_new_framework, has_its_event_in_the_report) { EXPECT_NE(replay(scenario()).out.find("flush"), std::string::npos); }

TEST(events_of_a_framework, that_it_does_not_have_or_read_are_refused_by_their_pointers) {
  json document = scenario();
  document["script"] = json::parse(R"([{"backward": {}}, {"event": {"name": "fluhs"}}, {"step": {}}])");
  EXPECT_NE(replay(document).err.find("/script/1/event/name"), std::string::npos);
  EXPECT_NE(replay(document).err.find("did you mean \"flush\"?"), std::string::npos);
  document["script"][1]["event"] = {{"name", "flush"}, {"divide", "never"}};
  EXPECT_NE(replay(document).err.find("/script/1/event/divide"), std::string::npos);
  document["script"][1]["event"] = {{"name", "flush"}, {"twice", true}};
  EXPECT_NE(replay(document).err.find("/script/1/event/twice"), std::string::npos);
  document["script"][1] = {{"no_sync", {{{"backward", json::object()}}}}};
  EXPECT_NE(replay(document).err.find("/script/1"), std::string::npos);
  EXPECT_EQ(replay(document).code, tool::bad_input);
}

TEST(events_of_a_framework, are_refused_to_the_others) {
  json document = scenario();
  document["engine"] = {{"framework", "fsdp1"}, {"config", json::object()}};
  EXPECT_NE(replay(document).err.find("\"fsdp1\" has no such event"), std::string::npos);
  document["engine"]["framework"] = "ddp";  // which has others
  EXPECT_NE(replay(document).err.find("require_manual_backward_finalization"), std::string::npos) << replay(document).err;
}

TEST(a_framework, that_is_not_in_the_registry_is_refused) {
  const Outcome refused = run_program({GRADLEDGER_COMMAND, "replay", folder + "/flushed.json"});
  EXPECT_EQ(refused.code, tool::bad_input);
  EXPECT_NE(refused.err.find("/engine/framework"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace gradledger::testing
