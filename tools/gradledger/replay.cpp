#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "ref/facts.h"
#include "tools/gradledger/accounting_report.h"
#include "verbs/compare.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/report.h"
#include "tools/gradledger/verbs.h"
#include "report/version/version.h"

namespace gradledger::tool {
namespace {

nlohmann::ordered_json trace_header(const Loaded& loaded, const Options& options) {
  return {{"record", "start"}, {"schema_version", 1}, {"tool", tool_json()}, {"command", repeat_command({loaded.path}, options)}, {"scenario", loaded.scenario.name}, {"seed", options.seed}};
}

int replay_one(const std::string& file, const Options& options) {
  const auto loaded = load(file, options);
  if (!loaded) {
    complain(loaded.error());
    return loaded.error().unavailable ? unavailable : bad_input;
  }
  say_what_is_taken_as(file, (*loaded)->scenario);
  EventWatch lines;
  std::optional<TraceWriter> trace;
  ref::Tee watch;
  watch.add(&lines);
  if (!options.trace.empty()) {
    trace.emplace(options.trace);
    trace->header(trace_header(**loaded, options));
    watch.add(&*trace);
  }
  ref::Verdict verdict;
  try {
    verdict = judge(**loaded, options, &watch);
    explain(**loaded, options, verdict);
  } catch (const ProgramsTooLarge&) {
    complain(programs_too_large(**loaded, options));
    return unavailable;
  }
  if (trace) {
    trace->finish(verdict.facts.summary);
    if (!trace->ok()) {
      complain({"--trace", options.trace + " cannot be written"});
      return bad_input;
    }
  }
  if (verdict.facts.summary.replay_diverged)
    fmt::print(stderr, "gradledger: --schedule: a recorded decision was not possible; the run went on with the seeded policy\n");
  if (options.json) fmt::print("{}\n", json_report(**loaded, options, verdict).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  else fmt::print("{}", terminal_report(**loaded, options, verdict, lines));
  if (!verdict.judged() && !(*loaded)->scenario.allow_open) {
    complain({file, "nothing was judged: " + verdict.coverage.nothing + "; a scenario that means this says \"allow_open\": true"});
    return bad_input;
  }
  return verdict.findings.empty() ? clean : findings;
}

int compare_one(const std::string& file, const Options& options) {
  const auto loaded = load(file, options);
  if (!loaded) {
    complain(loaded.error());
    return loaded.error().unavailable ? unavailable : bad_input;
  }
  try {
    const Compared compared = compare_producers(**loaded, options);
    const std::string text = text_of(compared, **loaded, options);
    if (options.json) {
      const nlohmann::ordered_json line{{"schema_version", 1}, {"tool", tool_json()}, {"scenario", (*loaded)->scenario.name}, {"compare", options.compare},
                                        {"equal", !compared.difference && !compared.races},
                                        {"races", compared.races}, {"runs", compared.runs}, {"records", compared.records}, {"text", text}};
      fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    } else {
      fmt::print("{}: {}\n", (*loaded)->scenario.name, text);
    }
    return compared.difference || compared.races ? findings : clean;
  } catch (const ProgramsTooLarge&) {
    complain(programs_too_large(**loaded, options));
    return unavailable;
  }
}

std::optional<Accounting> accounting_of(const std::string& file, const Options& options, std::unique_ptr<Loaded>& loaded, int& code) {
  auto read = load(file, options, Use::account);
  if (!read) {
    complain(read.error());
    code = bad_input;
    return std::nullopt;
  }
  loaded = std::move(read).value();
  try {
    return account(*loaded, options, nullptr);
  } catch (const ProgramsTooLarge&) {
    complain(programs_too_large(*loaded, options));
    code = unavailable;
    return std::nullopt;
  }
}

// Nothing is judged, so nothing is found.
int replay_accounting(const std::vector<std::string>& files, const Options& options) {
  int worst = clean;
  const bool table = options.summary && !options.json;
  if (table) fmt::print("# {}\n", repeat_command({files.begin(), files.end()}, options));
  std::vector<AccountingRow> rows;
  for (std::size_t i = 0; i < files.size(); ++i) {
    std::unique_ptr<Loaded> loaded;
    int code = clean;
    const auto accounting = accounting_of(files[i], options, loaded, code);
    worst = std::max(worst, code);
    if (!accounting) continue;
    if (table) rows.push_back(accounting_row(*loaded, *accounting));
    else if (options.json) fmt::print("{}\n", accounting_json(*loaded, options, *accounting).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    else fmt::print("{}{}", i > 0 ? "\n" : "", accounting_report(*loaded, options, *accounting));
  }
  if (table) fmt::print("{}", accounting_table(rows));
  return worst;
}

}  // namespace

// Several files: the worst outcome decides; input errors before findings.
int replay(const std::vector<std::string>& files, const Options& options) {
  if (const auto schedule = schedule_from(options); !schedule) {
    complain(schedule.error());
    return bad_input;
  }
  if (options.accounting) return replay_accounting(files, options);
  if (!options.trace.empty() && files.size() > 1) {
    complain({"--trace", "goes with one scenario; expected a single file"});
    return bad_input;
  }
  std::error_code missing;
  for (const std::string& read : files)
    if (!options.trace.empty() && std::filesystem::equivalent(options.trace, read, missing)) {
      complain({"--trace", options.trace + " is the scenario; expected a file of its own"});
      return bad_input;
    }
  if (!options.trace.empty() && std::filesystem::equivalent(options.trace, options.schedule, missing)) {
    complain({"--trace", options.trace + " is the schedule that is replayed; expected another file"});
    return bad_input;
  }
  int worst = clean;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (i > 0 && !options.json && options.compare.empty()) fmt::print("\n");
    worst = std::max(worst, options.compare.empty() ? replay_one(files[i], options) : compare_one(files[i], options));
  }
  return worst;
}

}  // namespace gradledger::tool
