#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "report/chrome_trace.h"
#include "report/trace_file.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/output.h"
#include "tools/gradledger/progress.h"
#include "tools/gradledger/stopwatch.h"
#include "tools/gradledger/verbs.h"
#include "verbs/accounting.h"
#include "verbs/compare.h"
#include "verbs/lanes.h"
#include "verbs/new_file.h"
#include "verbs/replay.h"

namespace gradledger::tool {
namespace {

// An error where there was nothing to write, or no place for it.
std::optional<InputError> add_lanes(const Loaded& loaded, const Options& options, report::Report& report) {
  if (options.html.empty() && options.chrome_trace.empty()) return std::nullopt;
  verbs::add_picture(loaded, options, report, options.chrome_trace.empty() ? verbs::Picture::page : verbs::Picture::file);
  if (options.chrome_trace.empty()) return std::nullopt;
  if (!report.lanes->left_out.empty()) return InputError{"--chrome-trace", report.lanes->left_out, true};
  if (const auto error = verbs::replace_or_write(options.chrome_trace, report::chrome_trace(*report.lanes, report.command)))
    return InputError{"--chrome-trace", options.chrome_trace + " " + error->message};
  return std::nullopt;
}

int replay_loaded(const std::string& file, const Options& options, const Output& out) {
  std::vector<InputError> errors;
  const auto loaded = load(file, options, Use::judge, &errors);
  if (!loaded) {
    out.refuse(file, errors);
    return loaded.error().unavailable ? unavailable : bad_input;
  }
  const Stopwatch watch;
  say_what_is_taken_as(**loaded);
  std::optional<report::TraceWriter> trace;
  if (!options.trace.empty()) {
    auto created = OutputFile::create(options.trace);
    if (!created) {
      complain({"--trace", options.trace + " " + created.error().message});
      return bad_input;
    }
    trace.emplace(std::move(created).value()).header(repeat_command({file}, options), (*loaded)->scenario.name, options.seed);
  }
  report::Report report;
  try {
    const Progress progress("replaying " + file);
    report = verbs::replay(**loaded, options, trace ? &*trace : nullptr);
  } catch (const ProgramsTooLarge&) {
    out.refuse(file, programs_too_large(**loaded, options));
    return unavailable;
  }
  report.seconds = watch.seconds();
  if (trace)
    if (const auto error = trace->finish(report.run)) {
      complain({"--trace", options.trace + " " + error->message});
      return bad_input;
    }
  if (report.run.replay_diverged) say("--schedule: a recorded decision was not possible; the run went on with the seeded policy");
  const auto no_lanes = add_lanes(**loaded, options, report);
  out.print(report);
  if (no_lanes) {
    complain(*no_lanes);
    return no_lanes->unavailable ? unavailable : bad_input;
  }
  if (report.outcome() == report::Outcome::nothing_judged && !(*loaded)->scenario.allow_open) {
    out.refuse(file, {file, "nothing was judged: " + report.coverage.nothing + "; a scenario that means this says \"allow_open\": true"});
    return bad_input;
  }
  return report.findings.empty() ? clean : findings;
}

int replay_one(const std::string& file, const Options& options, const Output& out) {
  try {
    return replay_loaded(file, options, out);
  } catch (const driver::NotRun& error) {
    const InputError refused{file, std::string("cannot be run: ") + error.what(), true};
    complain(refused);
    out.skip(file, refused.text());
    return unavailable;
  }
}

int compare_one(const std::string& file, const Options& options, const Output& out) {
  std::vector<InputError> errors;
  const auto loaded = load(file, options, Use::judge, &errors);
  if (!loaded) {
    out.refuse(file, errors);
    return loaded.error().unavailable ? unavailable : bad_input;
  }
  try {
    const Stopwatch watch;
    report::ProducersReport report = [&] {
      const Progress progress("comparing the producers on " + file);
      return verbs::compare_report(**loaded, options);
    }();
    report.seconds = watch.seconds();
    out.print(report);
    return report.equal ? clean : findings;
  } catch (const ProgramsTooLarge&) {
    complain(programs_too_large(**loaded, options));
    return unavailable;
  }
}

std::optional<report::AccountingReport> accounting_of(const std::string& file, const Options& options, const Output& out, int& code) {
  std::vector<InputError> errors;
  const auto loaded = load(file, options, Use::account, &errors);
  if (!loaded) {
    out.refuse(file, errors);
    code = bad_input;
    return std::nullopt;
  }
  try {
    const Progress progress("running dry " + file);
    const Stopwatch watch;
    report::AccountingReport out = verbs::accounting_report(**loaded, options);
    out.seconds = watch.seconds();
    return out;
  } catch (const ProgramsTooLarge&) {
    complain(programs_too_large(**loaded, options));
    code = unavailable;
    return std::nullopt;
  }
}

// Nothing is judged, so nothing is found.
int replay_accounting(const std::vector<std::string>& files, const Options& options, const Output& out) {
  int worst = clean;
  report::AccountingSummary summary{repeat_command({files.begin(), files.end()}, options), {}};
  for (std::size_t i = 0; i < files.size(); ++i) {
    int code = clean;
    const auto report = accounting_of(files[i], options, out, code);
    worst = std::max(worst, code);
    if (!report) continue;
    summary.rows.push_back(report->row);
    if (i > 0 && !options.summary) out.between();
    out.print(*report);
  }
  if (options.summary) out.print(summary);
  return worst;
}

// Why the files to write cannot be those, if they cannot.
std::optional<InputError> refusal_of_files(const std::vector<std::string>& files, const Options& options) {
  std::error_code missing;
  for (const auto& [option, path] : {std::pair("--trace", options.trace), std::pair("--chrome-trace", options.chrome_trace), std::pair("--html", options.html)}) {
    if (path.empty()) continue;
    if (files.size() > 1 && option != std::string("--html")) return InputError{option, "goes with one scenario; expected a single file"};
    for (const std::string& read : files)
      if (std::filesystem::equivalent(path, read, missing)) return InputError{option, path + " is the scenario; expected a file of its own"};
    if (std::filesystem::equivalent(path, options.schedule, missing)) return InputError{option, path + " is the schedule that is replayed; expected another file"};
  }
  return std::nullopt;
}

}  // namespace

// Several files: the worst outcome decides; input errors before findings.
int replay(const std::vector<std::string>& files, const Options& options, const Output& out) {
  if (const auto schedule = schedule_from(options); !schedule) {
    complain(schedule.error());
    return bad_input;
  }
  if (const auto error = refusal_of_files(files, options)) {
    complain(*error);
    return bad_input;
  }
  if (options.accounting) return replay_accounting(files, options, out);
  int worst = clean;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (i > 0 && options.compare.empty()) out.between();
    worst = std::max(worst, options.compare.empty() ? replay_one(files[i], options, out) : compare_one(files[i], options, out));
  }
  return worst;
}

}  // namespace gradledger::tool
