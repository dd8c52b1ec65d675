#include <algorithm>
#include <ctime>

#include <fmt/format.h>

#include "sim/base/files.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/gate_options.h"
#include "tools/gradledger/interruption.h"
#include "tools/gradledger/last_failed.h"
#include "tools/gradledger/numbers.h"
#include "tools/gradledger/output.h"
#include "tools/gradledger/progress.h"
#include "tools/gradledger/stopwatch.h"
#include "tools/gradledger/verbs.h"
#include "verbs/gate.h"
#include "verbs/mutants.h"

namespace gradledger::tool {
namespace {

using report::GateRow;

constexpr const char* budget_is_over = "--time-budget";

int code_of(const report::GateReport& gate, const Options& options, const GateVerb& verb) {
  const auto any = [&](auto&& of) { return std::any_of(gate.rows.begin(), gate.rows.end(), of); };
  for (const GateRow& row : gate.rows)
    if (row.broken) {
      complain_lines(row.unmet.back().text, broken_run);
      return broken_run;
    }
  if (any([](const GateRow& row) { return row.bad_input; })) return bad_input;
  if (!gate.left_out.empty() && !verb.allow_left_out) return bad_input;
  if (any([](const GateRow& row) { return row.unavailable; })) return unavailable;
  if (gate.ended_by == budget_is_over) {
    complain({budget_is_over, fmt::format("was over with {} of {} scenarios left; expected more seconds, --jobs or --shard", gate.files - gate.rows.size(), gate.files)}, findings);
    return findings;
  }
  if (gate.files > 0 && !options.compare.empty() && !any([](const GateRow& row) { return row.compared; })) {
    complain({"--compare", "found nothing to compare: every scenario races or is of accounting alone"});
    return bad_input;
  }
  if (gate.files == 0) return clean;  // a launcher's process for which the others left nothing
  if (gate.passed() + gate.failed() == 0) {
    complain({"--producer", "ran none of the scenarios; expected scenarios that " + options.producer + " can run"});
    return bad_input;
  }
  return gate.failed() == 0 ? clean : findings;
}

// What is meant may be left out by accident: a gate that does not see it would pass for ever.
void tell_left_out(const report::GateReport& gate, const GateVerb& verb) {
  constexpr std::size_t told_max = 16;
  for (std::size_t i = 0; i < std::min(told_max, gate.left_out.size()); ++i) {
    const InputError left_out{gate.left_out[i].file, "left out: " + gate.left_out[i].why};
    verb.allow_left_out ? say(left_out.text()) : complain(left_out);
  }
  if (gate.left_out.size() > told_max) say(fmt::format("{} more were left out", gate.left_out.size() - told_max));
  if (!gate.left_out.empty() && !verb.allow_left_out) say("what is left out fails the gate; expected it to be moved, or --allow-left-out");
}

void tell_durations(const report::GateReport& gate, std::uint32_t number) {
  std::vector<const GateRow*> slowest;
  for (const GateRow& row : gate.rows) slowest.push_back(&row);
  std::stable_sort(slowest.begin(), slowest.end(), [](const GateRow* a, const GateRow* b) { return a->seconds > b->seconds; });
  slowest.resize(std::min<std::size_t>(slowest.size(), number));
  for (const GateRow* row : slowest) say(fmt::format("{:8.3f} s  {}", row->seconds, row->file));
}

std::string date_of_the_system() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return fmt::format("{:04}-{:02}-{:02}", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday);
}

// What the options ask for, with all that it refers to.
struct Asked {
  verbs::GateManner manner;
  verbs::Baseline baseline;
  LastFailed last_failed;
};

std::optional<InputError> ask(const Options& options, const GateVerb& verb, Asked& out) {
  if (!verb.only.empty()) {
    auto only = verbs::Expression::parse(verb.only);
    if (!only) return only.error();
    out.manner.selection.only = std::move(only).value();
  }
  const auto shard = shard_from(verb.shard);
  if (!shard) return shard.error();
  if (shard->second > 1) out.manner.selection.shard = verbs::Shard{shard->first, shard->second};
  if (verb.last_failed) {
    auto last = LastFailed::read(verb.state);
    if (!last) return last.error();
    out.last_failed = std::move(last).value();
    if (!out.last_failed.empty()) out.manner.selection.also = [&](const std::filesystem::path& file) { return out.last_failed.contains(file); };
  }
  if (!verb.baseline.empty()) {
    auto baseline = verbs::read_baseline(verb.baseline, verb.today.empty() ? date_of_the_system() : verb.today);
    if (!baseline) return baseline.error();
    out.baseline = std::move(baseline).value();
    out.manner.baseline = &out.baseline;
  }
  out.manner.until_a_failure = verb.first_failure;
  out.manner.update = verb.update;
  out.manner.jobs = options.jobs;
  return std::nullopt;
}

// The options chose, and left nothing: that is an error, for a gate over nothing does not pass.
InputError nothing_selected(const report::GateReport& gate, const GateVerb& verb) {
  const char* option = !verb.only.empty() ? "-k" : verb.last_failed ? "--last-failed" : "--shard";
  return {option, fmt::format("leaves none of {} scenarios; expected some", gate.deselected)};
}

}  // namespace

int gate(const std::vector<std::string>& paths, const Options& options, const GateVerb& verb, const Output& out) {
  const auto refuse = [](const InputError& error) {
    complain(error);
    return bad_input;
  };
  if (paths.empty()) return refuse({"", "PATH is required; expected scenario files, folders of them, or --mutants"});
  if (std::any_of(paths.begin(), paths.end(), [](const std::string& path) { return is_standard_input(path); })) {
    if (verb.update) return refuse({"--update", "changes files; expected none of them from standard input"});
    if (verb.last_failed) return refuse({"--last-failed", "remembers files; expected none of them from standard input"});
  }
  Asked asked;
  if (const auto error = ask(options, verb, asked)) return refuse(*error);
  const Interruption interruption;
  Progress progress("beginning");
  asked.manner.seconds = [&] { return progress.seconds(); };
  asked.manner.stop = [&]() -> std::string {
    if (Interruption::signal() != 0) return Interruption::name();
    if (Output::failed()) return "standard output";
    return verb.budget_s && progress.seconds() >= static_cast<double>(*verb.budget_s) ? budget_is_over : "";
  };
  const auto refuse_later = [&](const InputError& error) {
    progress.aside([&] { complain(error); });
    return bad_input;
  };
  std::size_t done = 0, failed = 0;
  const auto show = [&](const GateRow& row) {
    failed += row.failed();
    progress.set(fmt::format("{} scenarios, {} failed; last {}", ++done, failed, row.file));
    progress.aside([&] {
      if (!row.note.empty()) say(row.note);
      out.print(row);
    });
  };
  auto report = verbs::gate(paths, options, show, asked.manner);
  if (!report) return refuse_later(report.error());
  if (report->files == 0 && asked.last_failed.empty() && !options.of_a_launcher) return refuse_later(nothing_selected(*report, verb));
  if (report->files == 0 && !asked.last_failed.empty()) {
    // What failed is not among these paths, so nothing is known of them.
    asked.manner.selection.also = nullptr;
    report = verbs::gate(paths, options, show, asked.manner);
    if (!report) return refuse_later(report.error());
    if (report->files == 0 && !options.of_a_launcher) return refuse_later(nothing_selected(*report, verb));
  }
  int code = clean;
  progress.aside([&] {
    out.print(*report);
    tell_left_out(*report, verb);
    tell_durations(*report, verb.durations);
    if (Interruption::signal() == 0) code = code_of(*report, options, verb);
  });
  if (verb.last_failed) {
    asked.last_failed.learn(*report);
    if (const auto written = asked.last_failed.write(verb.state); !written) return refuse_later(written.error());
  }
  return Interruption::exit_code_or(code);
}

int gate_mutants(const std::vector<std::string>& paths, const Options& options, const Output& out) {
  if (!paths.empty()) {
    complain({"--mutants", "goes without scenarios; expected no PATH"});
    return bad_input;
  }
  const Interruption interruption;
  Progress progress("planting faults");
  verbs::MutantOptions how{.seed = options.seed, .only = options.only_mutants, .cases = options.mutant_cases, .jobs = options.jobs};
  how.stop = [] { return Interruption::signal() != 0 || Output::failed(); };
  how.progress = [&](std::size_t done, std::size_t all) { progress.set(fmt::format("{} of {} faults planted", done, all)); };
  const auto report = verbs::gate_mutants(how);
  if (!report) {
    complain(report.error());
    return bad_input;
  }
  progress.aside([&] { out.print(*report); });
  return Interruption::exit_code_or(report->alive() == 0 ? clean : findings);
}

}  // namespace gradledger::tool
