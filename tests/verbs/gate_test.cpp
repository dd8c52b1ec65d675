// The library's verbs give values and print nothing.
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "verbs/accounting.h"
#include "verbs/command.h"
#include "verbs/gate.h"
#include "verbs/mutants.h"

namespace gradledger::testing {
namespace {

using report::GateRow;

std::string loop(const std::string& name, const std::string& rest = "", const std::string& as_of = "head") {
  return R"({"name": ")" + name + R"(", "world_size": 2, "parameters": [{"name": "w", "numel": 64}], "engine": {"framework": "deepspeed", "as_of": ")" + as_of +
         R"(", "config": {}}, "script": [{"backward": {}}, {"step": {}}])" + rest + "}";
}

struct Seen {
  std::vector<std::string> scenarios;
  std::string out, err;
  Result<report::GateReport> gate{InputError{}};
};

Seen gate_over(const std::vector<std::string>& paths, const verbs::Options& options = {}) {
  Seen seen;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  seen.gate = verbs::gate(paths, options, [&](const GateRow& row) { seen.scenarios.push_back(row.scenario); });
  seen.out = ::testing::internal::GetCapturedStdout();
  seen.err = ::testing::internal::GetCapturedStderr();
  return seen;
}

TEST(a_gate, gives_a_row_for_each_scenario_and_prints_nothing) {
  const TemporaryFolder folder;
  folder.write("a.json", loop("a"));
  folder.write("b.json", loop("b", R"(, "expect": {"findings": [{"class": "wrong-scale"}]})"));
  folder.write("c.json", R"({"name": "c"})");
  folder.write("d.json", loop("a"));
  folder.write("e.json", loop("e", "", "0.99.0"));
  const Seen seen = gate_over({folder.path()});
  ASSERT_TRUE(seen.gate) << seen.gate.error().text();
  EXPECT_EQ(seen.out + seen.err, "");
  const std::vector<GateRow>& rows = seen.gate->rows;
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(seen.scenarios, (std::vector<std::string>{"a", "b", folder.path() / "c.json", "a", "e"}));
  EXPECT_EQ(seen.gate->passed(), 2u);
  EXPECT_EQ(seen.gate->failed(), 3u);
  EXPECT_EQ(seen.gate->not_run(), 0u);
  EXPECT_EQ(rows[0].reported, "clean");
  EXPECT_EQ(rows[1].expected, "wrong-scale");
  ASSERT_EQ(rows[1].unmet.size(), 1u);
  EXPECT_EQ(rows[1].unmet[0].text, "expected and not reported: wrong-scale");
  EXPECT_FALSE(rows[1].bad_input);
  EXPECT_TRUE(rows[2].bad_input);
  ASSERT_EQ(rows[3].unmet.size(), 1u);
  EXPECT_EQ(rows[3].unmet[0].text, "the name is taken by another scenario of the corpus");
  EXPECT_EQ(rows[0].note, "");
  EXPECT_TRUE(rows[4].note.starts_with((folder.path() / "e.json").string() + ":1:")) << rows[4].note;
  EXPECT_NE(rows[4].note.find(": /engine/as_of: "), std::string::npos) << rows[4].note;
}

TEST(a_gate, tells_what_cannot_be_run_here_from_what_is_wrong) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.json", loop("a"));
  verbs::Options small;
  small.memory_limit = 16;
  const Seen refused = gate_over({path}, small);
  ASSERT_TRUE(refused.gate);
  EXPECT_TRUE(refused.gate->rows.at(0).unavailable);
  EXPECT_FALSE(refused.gate->rows[0].bad_input);
  EXPECT_FALSE(gate_over({folder.path() / "nowhere"}).gate);
}

TEST(a_gate, between_two_producers_says_which_rows_it_compared) {
  const TemporaryFolder folder;
  folder.write("a.json", loop("a"));
  folder.write("b.json", loop("b", R"(, "expect": {"accounting_only": true, "not_allocated": ["accumulated_grads_in_cpu"]})"));
  verbs::Options options;
  options.compare = "host,host";
  const Seen seen = gate_over({folder.path()}, options);
  ASSERT_TRUE(seen.gate);
  EXPECT_TRUE(seen.gate->rows.at(0).compared);
  EXPECT_EQ(seen.gate->rows[0].expected, "equal");
  EXPECT_FALSE(seen.gate->rows.at(1).compared);
  EXPECT_EQ(seen.gate->failed(), 0u);
}

TEST(a_gate_over_mutants, has_a_row_for_each_engine_of_those_that_were_asked_for) {
  const auto report = verbs::gate_mutants({.only = {"micro-batch-lost"}});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->mutants(), 1u);
  EXPECT_GT(report->rows.size(), 1u);
  EXPECT_EQ(report->alive(), 0u);
  EXPECT_FALSE(verbs::gate_mutants({.only = {"no-such-mutant"}}));
}

TEST(an_accounting, is_a_value_with_its_row) {
  const TemporaryFolder folder;
  const auto loaded = verbs::load(folder.write("a.json", loop("a")), {}, verbs::Use::account);
  ASSERT_TRUE(loaded);
  verbs::Options options;
  options.accounting = true;
  const report::AccountingReport report = verbs::accounting_report(**loaded, options);
  EXPECT_EQ(report.accounting.ranks.size(), 2u);
  EXPECT_EQ(report.row.backwards, 1u);
  EXPECT_GT(report.row.peak_window_bytes, 0u);
  EXPECT_TRUE(report.command.ends_with(" --accounting")) << report.command;
  EXPECT_FALSE(report.in_short);
}

TEST(a_command, quotes_what_a_shell_would_take_apart) {
  EXPECT_EQ(verbs::shell_word("scenarios/a.json"), "scenarios/a.json");
  EXPECT_EQ(verbs::shell_word("it's here"), "'it'\\''s here'");
  EXPECT_EQ(verbs::shell_word("-x"), "./-x");
  EXPECT_EQ(verbs::shell_word("a\xff"), "$'a\\xff'");
}

}  // namespace
}  // namespace gradledger::testing
