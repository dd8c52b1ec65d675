// A recorded run judged by the oracle alone, and the runs of a file counted.
#pragma once

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "conformance/judged/judge.h"
#include "sim/load.h"

namespace gradledger::conform {

enum class JudgedAs { clean, findings, not_judged };

struct Judged {
  JudgedAs outcome = JudgedAs::not_judged;
  std::string why;       // not judged: why
  ref::Verdict verdict;  // empty where there is no run
};

inline Judged judge_alone(const Recording& recording) {
  if (!recording.refusal.empty()) return {JudgedAs::not_judged, "the framework refused the configuration", {}};
  const auto timeline = make_timeline(recording.scenario);
  if (!timeline) return {JudgedAs::not_judged, timeline.error().text(), {}};
  Judged out{JudgedAs::clean, "", judge_alone(recording, *timeline)};
  if (!out.verdict.judged()) out = {JudgedAs::not_judged, out.verdict.coverage.nothing, out.verdict};
  else if (!out.verdict.clean()) out.outcome = JudgedAs::findings;
  return out;
}

inline Judged judge_alone(const RecordedRun& run) {
  const auto recording = express(run);
  EXPECT_TRUE(recording) << run.name << ": " << recording.error().text();
  return judge_alone(*recording);
}

inline std::string text_of(const Judged& judged) {
  std::string out = judged.why + "\n";
  for (const ref::Finding& finding : judged.verdict.findings) out += finding.sentence + "\n";
  return out;
}

struct JudgedTotals {
  std::uint64_t clean = 0, with_findings = 0, not_judged = 0, snapshots = 0, unexplained = 0;

  void add(const Judged& judged) {
    clean += judged.outcome == JudgedAs::clean;
    with_findings += judged.outcome == JudgedAs::findings;
    not_judged += judged.outcome == JudgedAs::not_judged;
    snapshots += judged.verdict.coverage.judged;
    unexplained += judged.verdict.unexplained.size();
  }
};

}  // namespace gradledger::conform
