// Recordings of real runs: held against replays, or judged by the oracle with no engine between.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "report/conform.h"
#include "sim/base/result.h"
#include "verbs/session.h"

namespace gradledger::verbs {

// A line, or a file, that is no recording. The next one follows.
using Complaint = std::function<void(const InputError&)>;

// Every run of the files beside its replay; `seen` gets each row as it is there.
report::ConformSummary conform(const std::vector<std::string>& files, const std::function<void(const report::ConformRow&)>& seen, const Complaint& complain);

struct JudgeSink {
  std::function<void(report::Report&)> report;
  std::function<void(const report::NotJudgedRow&)> not_judged;
  Complaint complain;
};

// Every run of the files, or those of one name. A file of whose runs none is judged is complained of.
report::JudgeSummary judge_recordings(const std::vector<std::string>& files, const std::string& run, const Options& options, const JudgeSink& sink);

}  // namespace gradledger::verbs
