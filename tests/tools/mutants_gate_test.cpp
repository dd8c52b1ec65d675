// The gate over faults: each is planted, each is reported, and nothing else is taken for it.
#include <set>

#include "search/mutants/mutant.h"
#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

Outcome gate_mutants(std::vector<std::string> options) {
  options.insert(options.begin(), {"gate", "--mutants"});
  return run(std::move(options));
}

TEST(gate_over_mutants, finds_every_fault_in_each_of_its_engines_and_names_it) {
  const Outcome outcome = gate_mutants({"--jobs", "2"});
  EXPECT_EQ(outcome.code, tool::clean) << outcome.out;
  EXPECT_EQ(outcome.err, "");
  std::size_t planted = 0;
  for (const search::Mutant& mutant : search::mutants()) {
    planted += mutant.variants.size();
    EXPECT_NE(outcome.out.find("found   " + std::string(mutant.name) + " "), std::string::npos) << mutant.name;
  }
  const auto lines = lines_of(outcome.out);
  EXPECT_EQ(lines.size(), search::mutants().size() + 1);
  const std::string all = std::to_string(planted);
  EXPECT_EQ(lines.back(), std::to_string(search::mutants().size()) + " mutants planted in " + all + " engines altogether: " + all + " found, 0 alive");
}

TEST(gate_over_mutants, takes_those_that_are_named) {
  const Outcome one = gate_mutants({"--mutant", "micro-batch-lost"});
  EXPECT_EQ(one.code, tool::clean);
  ASSERT_EQ(lines_of(one.out).size(), 2u) << one.out;
  EXPECT_TRUE(lines_of(one.out)[0].starts_with("found   micro-batch-lost  ")) << one.out;
  EXPECT_TRUE(lines_of(one.out)[1].starts_with("1 mutant planted in ")) << one.out;
  const Outcome two = gate_mutants({"--mutant", "micro-batch-lost", "--mutant", "gradients-swapped"});
  EXPECT_EQ(lines_of(two.out).size(), 3u) << two.out;
  EXPECT_TRUE(lines_of(two.out).back().starts_with("2 mutants planted in ")) << two.out;
}

TEST(gate_over_mutants, prints_an_object_for_each_engine_and_one_of_the_whole) {
  const Outcome outcome = gate_mutants({"--mutant", "gradient-deposited-twice", "--json"});
  EXPECT_EQ(outcome.code, tool::clean);
  const auto records = testing::records_of(outcome);
  ASSERT_GE(records.size(), 2u);
  std::set<std::string> engines;
  for (std::size_t i = 0; i + 1 < records.size(); ++i) {
    const json& record = records[i];
    EXPECT_EQ(record["record"], "mutant");
    EXPECT_EQ(record["mutant"], "gradient-deposited-twice");
    EXPECT_EQ(record["found"], true);
    EXPECT_GE(record["cases"], 1);
    EXPECT_NE(std::find(record["reported"].begin(), record["reported"].end(), "duplicated-gradient"), record["reported"].end()) << record;
    engines.insert(record["engine"].get<std::string>());
  }
  EXPECT_EQ(engines.size(), records.size() - 1);
  EXPECT_EQ(records.back()["counts"], (json{{"mutants", 1}, {"planted", engines.size()}, {"found", engines.size()}, {"alive", 0}}));
}

// Of one case not every fault can show itself: some do not happen in it.
TEST(gate_over_mutants, fails_where_one_is_not_found) {
  const Outcome outcome = gate_mutants({"--cases", "1", "--jobs", "2"});
  EXPECT_EQ(outcome.code, tool::findings);
  EXPECT_NE(outcome.out.find("ALIVE   "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("\n        survives in "), std::string::npos) << outcome.out;
  EXPECT_EQ(lines_of(outcome.out).back().find(" 0 alive"), std::string::npos) << outcome.out;
}

TEST(gate_over_mutants, refuses_what_it_would_not_look_at) {
  const auto refused = [](std::vector<std::string> options, const std::string& part) { expect_complaint(gate_mutants(std::move(options)), tool::bad_input, part); };
  refused({"--mutant", "micro-batch-lots"}, "--mutant: \"micro-batch-lots\" is no mutant; docs/mutants.md lists them; did you mean \"micro-batch-lost\"?");
  refused({testing::clean_scenario}, "--mutants: goes without scenarios; expected no PATH");
  for (const auto& [option, value] :
       {std::pair{"--producer", "host"}, {"--producer", "gpu"}, {"--ranks", "threads"}, {"--deadline", "9"}, {"--memory-limit", "1gb"}, {"--compare", "host,host"}})
    refused({option, value}, std::string(option) + " excludes --mutants");
  for (const char* number : {"0", "-1", "010", "x"}) {
    refused({"--cases", number}, "--cases");
    refused({"--jobs", number}, "--jobs");
  }
}

TEST(gate, needs_something_to_hold) {
  expect_complaint(run({"gate"}), tool::bad_input, "PATH is required; expected scenario files, folders of them, or --mutants");
  for (const auto& [option, value] : {std::pair{"--mutant", "micro-batch-lost"}, {"--cases", "3"}})
    expect_complaint(run({"gate", testing::clean_scenario, option, value}), tool::bad_input, std::string(option) + " requires --mutants");
}

}  // namespace
}  // namespace gradledger::testing
