// --executor: which of the two keeps the ledger, where it can be asked for, and that the report says which it was.
#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(executor_of_a_replay, is_the_symbolic_one_unless_numbers_are_asked_for) {
  for (const std::string& scenario : {clean_scenario, leaking_scenario}) {
    const int code = scenario == clean_scenario ? tool::clean : tool::findings;
    for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--executor", "auto"}, {"--executor", "symbolic"}}) {
      std::vector<std::string> words{"replay", scenario};
      words.insert(words.end(), more.begin(), more.end());
      const Outcome outcome = run(words);
      EXPECT_EQ(outcome.code, code) << outcome.err;
      EXPECT_TRUE(says(outcome.out, "\n1 symbolic run for the weights, ")) << outcome.out;
      EXPECT_FALSE(says(outcome.out, "fingerprint")) << outcome.out;
    }
    const Outcome numeric = run({"replay", scenario, "--executor", "numeric"});
    EXPECT_EQ(numeric.code, code) << numeric.err;
    EXPECT_TRUE(says(numeric.out, " fingerprint, ")) << numeric.out;
    EXPECT_FALSE(says(numeric.out, "symbolic")) << numeric.out;
    EXPECT_TRUE(code == tool::clean || says(numeric.out, " --executor numeric\n")) << "how to repeat it: " << numeric.out;
  }
}

TEST(executor_of_a_replay, is_in_the_passes_of_its_record) {
  const json symbolic = record_of(run({"replay", leaking_scenario, "--json"}))["passes"];
  EXPECT_EQ(symbolic["symbolic"], 1);
  EXPECT_EQ(symbolic["fingerprint"], 0);
  EXPECT_EQ(symbolic["decode"], 0);
  const json numeric = record_of(run({"replay", leaking_scenario, "--json", "--executor", "numeric"}))["passes"];
  EXPECT_EQ(numeric["symbolic"], 0);
  EXPECT_GT(numeric["fingerprint"].get<int>(), 0);
  EXPECT_GT(numeric["decode"].get<int>(), 0);
  EXPECT_EQ(numeric["value"], record_of(run({"replay", leaking_scenario, "--json"}))["passes"]["value"]) << "values are compared in either case";
}

TEST(executor_of_a_gate, leaves_the_verdict_as_it_is) {
  for (const char* executor : {"auto", "symbolic", "numeric"}) {
    const Outcome outcome = run({"gate", clean_scenario, leaking_scenario, "--executor", executor});
    EXPECT_EQ(outcome.code, tool::clean) << executor << ": " << outcome.out << outcome.err;
    EXPECT_EQ(lines_of(outcome.out).back(), "2 passed, 0 failed") << executor;
  }
}

TEST(executor, that_does_not_exist_is_bad_input) {
  for (const char* verb : {"replay", "gate"}) expect_complaint(run({verb, clean_scenario, "--executor", "algebraic"}), tool::bad_input, "--executor: ");
}

TEST(executor, of_symbols_does_not_go_with_producers_that_have_numbers_alone) {
  for (const char* verb : {"replay", "gate"})
    for (const char* producer : {"gpu", "ddp"}) {
      const Outcome refused = run({verb, clean_scenario, "--executor", "symbolic", "--producer", producer});
      if (refused.code == tool::unavailable && says(refused.err, "no GPU is visible")) continue;  // that is said first
      EXPECT_EQ(refused.code, tool::bad_input) << verb << " " << producer << refused.err;
      EXPECT_TRUE(says(refused.err, std::string("--executor: symbolic works on the simulator's own operations; expected it without --producer ") + producer)) << refused.err;
    }
}

TEST(executor, is_not_chosen_where_no_ledger_of_one_run_is_kept) {
  const auto refused = [](std::vector<std::string> words, const std::string& other) {
    for (const char* executor : {"symbolic", "numeric"}) {
      std::vector<std::string> with = words;
      with.insert(with.end(), {"--executor", executor});
      expect_complaint(run(with), tool::bad_input, "--executor");
      EXPECT_TRUE(says(run(with).err, other)) << run(with).err;
    }
  };
  refused({"replay", clean_scenario, "--accounting"}, "--accounting");
  refused({"replay", clean_scenario, "--compare", "host,gpu"}, "--compare");
  refused({"gate", clean_scenario, "--compare", "host,gpu"}, "--compare");
  refused({"gate", "--mutants"}, "--mutants");
}

}  // namespace
}  // namespace gradledger::testing
