// What ranks of a framework showed, written to a file, and judged from it by the report that a replay has.
#include <algorithm>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "drivers/sessions/process_ranks.h"
#include "report/format.h"
#include "tests/tools/command.h"
#include "verbs/recordings.h"
#include "verbs/replay.h"
#include "verbs/trace_files.h"

namespace gradledger::driver {
namespace {

using nlohmann::json;

constexpr const char* scenario_text = R"({"name": "x", "world_size": 2, "parameters": [{"name": "a", "numel": 12}, {"name": "b", "numel": 5}],
  "engine": {"framework": "external", "config": {"anything": true}},
  "script": [{"backward": {"micro_batches": 3}}, {"step": {}}, {"backward": {"micro_batches": 3}}, {"step": {}}]})";

// But for who ran it and how it is called.
json report_json(const report::Report& report) {
  json out = json::parse(report::renderer("json", {})->text(report));
  for (const char* key : {"command", "file", "producer", "not_in_the_trace", "seconds"}) out.erase(key);
  for (json& finding : out["findings"])
    for (const char* key : {"file", "line", "column"}) finding.erase(key);
  return out;
}

class a_trace_of_a_framework : public ::testing::TestWithParam<const char*> {
 protected:
  void write() {
    SessionOptions session;
    session.driver = GetParam();
    session.python = GRADLEDGER_STAND_IN;
    session.deadline = std::chrono::seconds(20);
    ranks_ = std::make_unique<ProcessRanks>(session);
    options_.driver = ranks_.get();
    options_.producer = GetParam();
    const auto loaded = verbs::load(folder_.write("scenario.json", scenario_text), options_);
    ASSERT_TRUE(loaded) << loaded.error().text();
    replayed_ = verbs::replay(**loaded, options_);
    const auto written = verbs::write_trace(**loaded, options_, trace_);
    ASSERT_TRUE(written) << written.error().text();
    EXPECT_EQ(written->producer, std::string(GetParam()) + " (stand-in 1.0)");
    EXPECT_LE(written->passes, 4u) << "no more runs than a replay has";
  }

  testing::TemporaryFolder folder_;
  const std::string trace_ = folder_.path() / "trace.jsonl.gz";
  std::unique_ptr<ProcessRanks> ranks_;
  verbs::Options options_;
  report::Report replayed_;
};

TEST_P(a_trace_of_a_framework, is_judged_as_the_run_was_when_it_is_gone) {
  write();
  ranks_.reset();
  std::vector<report::Report> judged;
  verbs::JudgeSink sink;
  sink.report = [&](const report::Report& report) { judged.push_back(report); };
  sink.not_judged = [](const report::NotJudgedRow& row) { ADD_FAILURE() << row.why; };
  sink.complain = [](const InputError& error) { ADD_FAILURE() << error.text(); };
  verbs::judge_recordings({trace_}, "", {}, sink);
  ASSERT_EQ(judged.size(), 1u);
  EXPECT_EQ(report_json(judged[0]).dump(1), report_json(replayed_).dump(1));
  EXPECT_EQ(judged[0].producer, "trace of " + std::string(GetParam()) + " (stand-in 1.0)");
  const auto lacks = [&](const std::string& what) { return std::find(judged[0].trace_lacks.begin(), judged[0].trace_lacks.end(), what) != judged[0].trace_lacks.end(); };
  EXPECT_TRUE(lacks("memory")) << "of which the protocol has nothing";
  const std::string name = GetParam();
  EXPECT_EQ(lacks("gradients that steps apply"), name == "disagrees" || name == "raises");
}

TEST_P(a_trace_of_a_framework, has_the_exit_code_of_its_replay_and_no_replay_here) {
  write();
  EXPECT_EQ(testing::run({"judge", trace_}).code, replayed_.findings.empty() ? 0 : 1);
  const testing::Outcome compared = testing::run({"conform", trace_});
  EXPECT_EQ(compared.code, 4) << compared.out;
  EXPECT_NE(compared.out.find("framework \"external\" has no replay"), std::string::npos) << compared.out;
}

TEST(a_trace, is_not_there_where_a_rank_ended_on_the_way) {
  const testing::TemporaryFolder folder;
  SessionOptions session;
  session.driver = "ends";
  session.python = GRADLEDGER_STAND_IN;
  ProcessRanks ranks(session);
  verbs::Options options;
  options.driver = &ranks;
  const auto loaded = verbs::load(folder.write("scenario.json", scenario_text), options);
  ASSERT_TRUE(loaded) << loaded.error().text();
  const std::string before = folder.write("before.jsonl", "{}\n"), after = folder.path() / "after.jsonl";
  EXPECT_THROW(verbs::write_trace(**loaded, options, before), DriverFailure);
  EXPECT_THROW(verbs::write_trace(**loaded, options, after), DriverFailure);
  EXPECT_EQ(testing::text_of(before), "{}\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2) << "the scenario, and what was there";
}

INSTANTIATE_TEST_SUITE_P(of_every_kind, a_trace_of_a_framework,
                         ::testing::Values("right", "keeps-the-last-alone", "keeps-to-itself", "black-box", "disagrees", "never-comes", "raises"), [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace gradledger::driver
