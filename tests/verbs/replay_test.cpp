// A report of a verdict holds all that the verdict says, and each format shows it.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "report/format.h"
#include "tests/support/temporary_folder.h"
#include "verbs/replay.h"

namespace gradledger::testing {
namespace {

using nlohmann::json;
using report::Outcome;
using report::Report;

const std::filesystem::path corpus = std::filesystem::path(GRADLEDGER_SOURCE_DIR) / "scenarios";

std::unique_ptr<verbs::Loaded> loaded_from(const std::filesystem::path& path) {
  auto loaded = verbs::load(path, {});
  expects(loaded.ok(), "a scenario that can be judged");
  return std::move(loaded).value();
}

std::string shown(const char* format, const Report& report) { return report::renderer(format, {})->text(report); }

struct Judged {
  explicit Judged(const std::filesystem::path& path, verbs::Options options = {}) : loaded(loaded_from(path)), report(verbs::replay(*loaded, options)) {
    verdict = verbs::judge(*loaded, options, nullptr);
    verbs::explain(*loaded, options, verdict);
  }
  std::unique_ptr<verbs::Loaded> loaded;
  Report report;
  ref::Verdict verdict;
};

TEST(a_report_of_a_verdict, holds_each_finding_with_its_class_its_place_and_whose_it_is) {
  std::set<std::string> classes;
  for (const char* file : {"deepspeed-7985/boundary-leak-0.18.6.json", "streams/stage-3-side-stream-before-7898.json", "loops/107-loss-of-the-trainer-sums.json"}) {
    SCOPED_TRACE(file);
    const Judged judged(corpus / file);
    ASSERT_FALSE(judged.verdict.findings.empty());
    ASSERT_EQ(judged.report.findings.size(), judged.verdict.findings.size());
    const json object = json::parse(shown("json", judged.report));
    const std::string text = shown("terminal", judged.report);
    ASSERT_EQ(object["findings"].size(), judged.verdict.findings.size());
    for (std::size_t i = 0; i < judged.verdict.findings.size(); ++i) {
      const ref::Finding& due = judged.verdict.findings[i];
      const report::Finding& held = judged.report.findings[i];
      EXPECT_EQ(held.sentence, due.sentence);
      EXPECT_EQ(held.contributions, due.contributions);
      EXPECT_EQ(held.pointer, judged.loaded->timeline.pointers[judged.loaded->timeline.events[due.event].item]);
      ASSERT_TRUE(held.blame);
      EXPECT_EQ(held.blame->rule, due.blame->rule);
      EXPECT_EQ(object["findings"][i]["sentence"], due.sentence);
      EXPECT_EQ(object["findings"][i]["pointer"], held.pointer);
      if (classes.insert(std::string(name_of(due.finding))).second) {
        EXPECT_NE(text.find(due.sentence), std::string::npos) << "the first of its class: " << due.sentence;
      }
    }
  }
  EXPECT_GE(classes.size(), 2u);
}

TEST(a_report_of_a_verdict, holds_each_cell_of_the_ledger) {
  const Judged judged(corpus / "deepspeed-7985/boundary-leak-0.18.6.json");
  ASSERT_EQ(judged.report.ledger.size(), judged.verdict.applied.size());
  std::size_t cells = 0;
  const json object = json::parse(shown("json", judged.report));
  for (std::size_t i = 0; i < judged.report.ledger.size(); ++i) {
    const ref::LedgerRow& row = judged.report.ledger[i].row;
    EXPECT_EQ(row.observed, judged.verdict.applied[i].row.observed);
    EXPECT_EQ(row.expected, judged.verdict.applied[i].row.expected);
    for (std::size_t k = 0; k < row.observed.size(); ++k) cells += row.observed[k] != 0 || row.expected[k] != 0;
    cells -= object["ledger"][i]["weights"].size();
    for (const ref::ElementRange& e : row.elements) EXPECT_LT(e.parameter, judged.report.parameters.size());
  }
  EXPECT_FALSE(judged.report.ledger.empty());
  EXPECT_EQ(cells, 0u) << "cells that no line of JSON has";
}

// Elements of a finding "misplaced-shard" hold what is due of others; no format may show that as the weight that is due.
TEST(a_report_of_a_verdict, shows_weights_of_other_elements_as_misplaced) {
  for (const char* file : {"catalogue/19-missing-gradient-shifts.json", "fsdp2/partial-sums-of-different-parameters.json"}) {
    SCOPED_TRACE(file);
    verbs::Options options;
    options.full_ledger = true;
    const Judged judged(corpus / file, options);
    const json object = json::parse(shown("json", judged.report));
    std::size_t rows = 0, weights = 0;
    for (std::size_t i = 0; i < judged.report.ledger.size(); ++i) {
      const ref::AppliedRow& row = judged.report.ledger[i];
      rows += row.row.any_misplaced();
      for (std::size_t k = 0; k < row.columns.size(); ++k)
        if (row.row.misplaced_at(k) && row.row.expected[k] != 0) {
          EXPECT_NE(row.row.observed[k], row.row.expected[k]) << "of their own the elements have none, or another one";
        }
      for (const json& weight : object["ledger"][i]["weights"]) weights += weight["misplaced"].get<bool>();
    }
    EXPECT_GT(rows, 0u);
    EXPECT_GE(weights, rows);
    EXPECT_NE(shown("terminal", judged.report).find("[misplaced for "), std::string::npos) << shown("terminal", judged.report);
    EXPECT_NE(shown("terminal", judged.report).find("misplaced: what is there"), std::string::npos);
  }
}

TEST(a_report_of_a_verdict, says_what_was_judged_and_by_what) {
  verbs::Options options;
  options.seed = 3;
  const Judged judged(corpus / "deepspeed-7985/boundary-leak-0.18.6.json", options);
  const Report& r = judged.report;
  EXPECT_EQ(r.scenario, "7985-boundary-leak-0.18.6");
  EXPECT_EQ(r.framework, "deepspeed");
  EXPECT_EQ(r.engine, "BF16_Optimizer");
  EXPECT_EQ(r.as_of.base, "0.18.6");
  EXPECT_EQ(r.world_size, 2u);
  EXPECT_EQ(r.parameters, (std::vector<std::string>{"w0", "w1", "w2"}));
  EXPECT_EQ(r.elements, 64u);
  EXPECT_EQ(r.command, "gradledger replay " + judged.loaded->path.string() + " --seed 3");
  EXPECT_EQ(r.run.trace_hash, judged.verdict.facts.summary.trace_hash);
  EXPECT_EQ(r.coverage.windows_closed, 3u);
  EXPECT_FALSE(r.events.empty());
  std::size_t wrong = 0;
  for (const report::EventLine& line : r.events)
    for (const std::uint32_t rank : line.ranks)
      for (const report::EventLine::Buffer& b : line.record->buffers) {
        const std::vector<ref::SnapshotKey>& unbalanced = judged.verdict.unbalanced;
        EXPECT_EQ(b.wrong, std::find(unbalanced.begin(), unbalanced.end(), ref::SnapshotKey{line.event, b.at_end, rank, b.name}) != unbalanced.end()) << line.event;
        wrong += b.wrong;
      }
  EXPECT_GT(wrong, 0u);
}

// 723 parameters: a person reads it.
TEST(a_report_of_a_verdict, of_a_run_of_true_size_can_be_read) {
  const Judged judged(corpus / "true-size/llama-2-70b-7780-two-forwards.json");
  const std::string text = shown("terminal", judged.report);
  EXPECT_LT(text.size(), 40'000u);
  EXPECT_NE(text.find("723 buffers from "), std::string::npos) << text.substr(0, 4000);
}

// Elements that no machine holds: the releases are compared by symbolic runs.
TEST(a_report_of_a_verdict, names_the_known_defect_of_a_run_of_true_size) {
  const std::vector<std::pair<const char*, const char*>> known{{"llama-7b-7985-boundary-leak.json", "catalogue-4 0.18.5 - 0.19.0"},
                                                               {"llama-7b-7981-keeps-only-the-last.json", "catalogue-1 0.16.0 or before - 0.19.0"}};
  for (const auto& [file, due] : known) {
    SCOPED_TRACE(file);
    const Judged judged(corpus / "true-size" / file);
    ASSERT_FALSE(judged.report.findings.empty());
    const report::Finding& first = judged.report.findings.front();
    EXPECT_FALSE(first.too_large);
    ASSERT_TRUE(first.known.has_value());
    EXPECT_EQ(first.known->entry + " " + first.known->since + " - " + first.known->fixed, due);
  }
}

// 128 ranks with 64 micro-batches each: a million weights, all of them as due.
TEST(a_report_of_a_verdict, lists_of_what_balances_as_much_as_a_reader_needs_and_counts_the_rest) {
  const TemporaryFolder folder;
  json document = {{"name", "s"}, {"world_size", 128}, {"parameters", {{{"name", "w"}, {"numel", 1280}}}}, {"model_dtype", "bf16"}};
  document["engine"] = {{"framework", "deepspeed"}, {"optimizer", {{"type", "SGD"}, {"lr", 0.001}}}};
  document["engine"]["config"] = {{"gradient_accumulation_steps", 64}, {"bf16", {{"enabled", true}}}, {"zero_optimization", {{"stage", 2}}}};
  document["script"] = {{{"repeat", {{"times", 64}, {"of", {{{"backward", json::object()}}, {{"step", json::object()}}}}}}}};
  const std::filesystem::path file = folder.write("s.json", document.dump());
  verbs::Options options;
  options.executor = "symbolic";
  const auto listed = [&] {
    const Judged judged(file, options);
    EXPECT_TRUE(judged.verdict.clean());
    std::uint64_t weights = 0;
    for (const ref::AppliedRow& row : judged.report.ledger) weights += row.columns.size();
    EXPECT_EQ(judged.report.ledger.size() + judged.report.not_listed, 128u);
    return weights;
  };
  const std::uint64_t few = listed();
  EXPECT_GE(few, limits::listed_cells_max);
  EXPECT_LE(few, limits::listed_cells_max + 128 * 64);
  options.full_ledger = true;
  EXPECT_EQ(listed(), 128u * 128 * 64);
}

TEST(a_report_of_a_verdict, has_no_events_where_a_summary_is_asked_for) {
  verbs::Options options;
  options.summary = true;
  const Judged judged(corpus / "deepspeed-7985/boundary-leak-0.18.6.json", options);
  EXPECT_TRUE(judged.report.in_short);
  EXPECT_TRUE(judged.report.events.empty());
  EXPECT_TRUE(judged.report.command.ends_with(" --summary"));
}

// Everything that a verdict did not judge, and why.
TEST(a_report_of_a_verdict, holds_each_thing_that_was_not_judged) {
  const TemporaryFolder folder;
  const std::string path = folder.write("s.json", R"({"name": "s", "world_size": 2, "parameters": [{"name": "w", "numel": 64}],
    "engine": {"framework": "deepspeed", "config": {"gradient_accumulation_steps": 4}}, "script": [{"backward": {}}, {"step": {}}]})");
  const Judged nothing(path);
  EXPECT_EQ(nothing.report.outcome(), Outcome::nothing_judged);
  EXPECT_EQ(nothing.report.coverage.nothing, nothing.verdict.coverage.nothing);
  EXPECT_TRUE(nothing.report.open);
  EXPECT_NE(shown("terminal", nothing.report).find("nothing judged: 1 step() call, none at a boundary"), std::string::npos);
  EXPECT_EQ(json::parse(shown("json", nothing.report))["coverage"]["nothing_judged"], nothing.verdict.coverage.nothing);

  const Judged judged(corpus / "deepspeed-7985/boundary-leak-0.18.6.json");
  Report partly = judged.report;
  std::size_t reasons = 0;
  for (std::size_t i = 0; i < ref::reasons_not_due; ++i) {
    EXPECT_EQ(partly.coverage.not_judged[i], judged.verdict.coverage.not_judged[i]);
    partly.coverage.not_judged[i] = 1000 + i;
    const std::string text = shown("terminal", partly);
    reasons += text.find(std::to_string(1000 + i) + " " + std::string(name_of(static_cast<ref::NotDue>(i)))) != std::string::npos;
  }
  EXPECT_EQ(reasons, ref::reasons_not_due);
}

TEST(a_report_of_a_race, has_the_command_that_shows_it) {
  std::size_t shown_by_a_schedule = 0;
  for (const char* file : {"streams/refill-stage-1-before-5606.json", "streams/stage-3-side-stream-before-7898.json"}) {
    const Judged judged(corpus / file);
    for (const report::Finding& f : judged.report.findings) {
      ASSERT_EQ(f.race && f.race->schedule_seed, !f.race_command.empty());
      if (f.race_command.empty()) continue;
      ++shown_by_a_schedule;
      EXPECT_TRUE(f.race_command.ends_with(" --schedule-seed " + std::to_string(*f.race->schedule_seed))) << f.race_command;
    }
  }
  EXPECT_GT(shown_by_a_schedule, 0u);
}

}  // namespace
}  // namespace gradledger::testing
