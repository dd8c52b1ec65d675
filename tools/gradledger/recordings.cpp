// The verbs over recordings of real runs.
#include "verbs/recordings.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/output.h"
#include "tools/gradledger/stopwatch.h"
#include "tools/gradledger/verbs.h"
#include "verbs/trace_files.h"

namespace gradledger::tool {
namespace {

// The worst of several decides the exit code.
void complain_of(const InputError& error, int& worst) {
  complain(error);
  worst = std::max<int>(worst, error.unavailable ? unavailable : bad_input);
}

}  // namespace

// Written is written: what the oracle says of it, judge says.
int record(const std::string& file, const std::string& into, const Options& options, const Output& out) {
  std::error_code missing;
  if (std::filesystem::equivalent(into, file, missing)) {
    complain({"--output", into + " is the scenario; expected a file of its own"});
    return bad_input;
  }
  const auto refused = [&](const InputError& error) {
    out.refuse(file, error);
    return error.unavailable ? unavailable : bad_input;
  };
  try {
    std::vector<InputError> errors;
    const auto loaded = load(file, options, Use::judge, &errors);
    if (!loaded) {
      out.refuse(file, errors);
      return loaded.error().unavailable ? unavailable : bad_input;
    }
    say_what_is_taken_as(**loaded);
    const Stopwatch watch;
    const auto written = verbs::write_trace(**loaded, options, into);
    if (!written) return refused({"--output", written.error().text()});
    out.print(report::TraceRow{.file = into,
                               .scenario = (*loaded)->scenario.name,
                               .producer = written->producer,
                               .passes = written->passes,
                               .command = verbs::judge_command({into}, "", options),
                               .seconds = watch.seconds()});
    return clean;
  } catch (const ProgramsTooLarge&) {
    return refused({file, "takes more than --memory-limit while it runs; expected fewer events or parameters, or a larger limit", true});
  } catch (const driver::NotRun& error) {
    return refused({file, std::string("cannot be run: ") + error.what(), true});
  }
}

// A line or a file that is bad input does not keep the others from being compared.
int conform(const std::vector<std::string>& files, const Output& out) {
  int worst = clean;
  const report::ConformSummary summary = verbs::conform(
      files, [&](const report::ConformRow& row) { out.print(row); }, [&](const InputError& error) { complain_of(error, worst); });
  out.print(summary);
  if (worst != clean) return worst;
  if (summary.differ > 0) return findings;
  if (summary.agree > 0) return clean;
  complain({"", fmt::format("nothing was judged: none of {} runs can be expressed", summary.runs())}, unavailable);
  return unavailable;
}

int judge_recordings(const std::vector<std::string>& files, const std::string& run, const Options& options, const Output& out) {
  int worst = clean;
  bool first = true;
  const auto between = [&] {
    if (!first) out.between();
    first = false;
  };
  verbs::JudgeSink sink;
  Stopwatch watch;
  sink.report = [&](report::Report& report) {
    report.seconds = watch.lap();
    between();
    out.print(report);
  };
  sink.not_judged = [&](const report::NotJudgedRow& row) {
    between();
    out.print(row);
  };
  sink.complain = [&](const InputError& error) { complain_of(error, worst); };
  const report::JudgeSummary summary = verbs::judge_recordings(files, run, options, sink);
  between();
  out.print(summary);
  if (worst != clean) return worst;
  return summary.with_findings > 0 ? findings : clean;
}

}  // namespace gradledger::tool
