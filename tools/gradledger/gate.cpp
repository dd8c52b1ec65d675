#include <algorithm>

#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/output.h"
#include "tools/gradledger/stopwatch.h"
#include "tools/gradledger/verbs.h"
#include "verbs/gate.h"
#include "verbs/mutants.h"

namespace gradledger::tool {
namespace {

using report::GateRow;

int code_of(const report::GateReport& gate, const Options& options) {
  const auto any = [&](auto&& of) { return std::any_of(gate.rows.begin(), gate.rows.end(), of); };
  for (const GateRow& row : gate.rows)
    if (row.broken) {
      say_lines(row.unmet.back().text);
      return broken_run;
    }
  if (any([](const GateRow& row) { return row.bad_input; })) return bad_input;
  if (any([](const GateRow& row) { return row.unavailable; })) return unavailable;
  if (!options.compare.empty() && !any([](const GateRow& row) { return row.compared; })) {
    complain({"--compare", "found nothing to compare: every scenario races or is of accounting alone"});
    return bad_input;
  }
  if (gate.passed() + gate.failed() == 0) {
    complain({"--producer", "ran none of the scenarios; expected scenarios that " + options.producer + " can run"});
    return bad_input;
  }
  return gate.failed() == 0 ? clean : findings;
}

}  // namespace

int gate(const std::vector<std::string>& paths, const Options& options, const Output& out) {
  if (paths.empty()) {
    complain({"", "PATH is required; expected scenario files, folders of them, or --mutants"});
    return bad_input;
  }
  Stopwatch watch;
  const auto show = [&](GateRow& row) {
    row.seconds = watch.lap();
    if (!row.note.empty()) say(row.note);
    out.print(row);
  };
  const auto report = verbs::gate(paths, options, show);
  if (!report) {
    complain(report.error());
    return bad_input;
  }
  out.print(*report);
  return code_of(*report, options);
}

int gate_mutants(const std::vector<std::string>& paths, const Options& options, const Output& out) {
  if (!paths.empty()) {
    complain({"--mutants", "goes without scenarios; expected no PATH"});
    return bad_input;
  }
  const auto report = verbs::gate_mutants({.seed = options.seed, .only = options.only_mutants, .cases = options.mutant_cases, .jobs = options.jobs});
  if (!report) {
    complain(report.error());
    return bad_input;
  }
  out.print(*report);
  return report->alive() == 0 ? clean : findings;
}

}  // namespace gradledger::tool
