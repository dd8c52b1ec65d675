// The simulator's runs of a scenario, written as a trace.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "conformance/trace/trace_writer.h"
#include "ref/oracle.h"
#include "sim/base/files.h"
#include "sim/load.h"
#include "sim/producers/producers.h"
#include "tests/support/temporary_folder.h"

namespace gradledger::conform {

inline std::filesystem::path scenario_file(const std::string& name) { return std::filesystem::path(GRADLEDGER_SOURCE_DIR) / "scenarios" / (name + ".json"); }

// What the oracle found while the trace was written.
inline ref::Verdict write_trace(const Scenario& scenario, const std::string& path) {
  const auto timeline = make_timeline(scenario);
  EXPECT_TRUE(timeline);
  const auto simulation = make_producer(scenario, *timeline);
  auto file = LineWriter::create(path);
  EXPECT_TRUE(file);
  RecordingProducer recording(*simulation, scenario, *timeline, {"host", {{"gradledger", "0"}}, 3}, std::move(file).value());
  ref::OracleOptions options;
  options.seed = options.schedule.seed = 3;
  ref::Verdict verdict = ref::judge(scenario, *timeline, recording, options);
  EXPECT_FALSE(recording.close());
  return verdict;
}

// A trace of a scenario of the corpus, and its lines.
struct WrittenTrace {
  testing::TemporaryFolder folder;
  std::string path;
  ref::Verdict verdict;
  std::vector<std::string> lines;

  explicit WrittenTrace(const std::string& scenario, const std::string& name = "trace.jsonl") : path(folder.path() / name) {
    const auto loaded = load_scenario(scenario_file(scenario));
    EXPECT_TRUE(loaded) << scenario;
    verdict = write_trace(*loaded, path);
    LineReader reader = std::move(LineReader::open(path)).value();
    while (*reader.next()) lines.push_back(reader.line());
  }

  // The trace with other lines.
  std::string with(const std::vector<std::string>& changed, const std::string& name = "changed.jsonl") const {
    std::string text;
    for (const std::string& line : changed) text += line + "\n";
    return folder.write(name, text);
  }
};

}  // namespace gradledger::conform
