#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "search/shrink/edits.h"
#include "search/campaign/rows.h"
#include "search/shrink/shape.h"
#include "sim/frameworks/framework.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/fuzz.h"
#include "tools/gradledger/interruption.h"
#include "tools/gradledger/output.h"
#include "tools/gradledger/progress.h"
#include "verbs/scenario_files.h"
#include "tools/gradledger/verbs.h"

namespace gradledger::tool {
namespace {

struct KnownRow {
  search::KnownDefect defect;
  std::size_t events = 0;  // of the shortest scenario of the folder that shows it
};

std::size_t events_in(Scenario scenario) {
  search::unroll(scenario);
  return search::events_of(scenario.script);
}

// What a scenario says of the entries that it shows.
void add_rows(const Loaded& loaded, const Options& options, std::map<std::string, KnownRow>& rows, std::set<std::string>& of_loops) {
  const Scenario& s = loaded.scenario;
  if (s.expect.findings.empty() || s.expect.accounting_only || verbs::bytes_needed(s) > options.memory_limit) return;
  // No script that is drawn states what it means: a finding of its class would be another defect.
  if (loaded.timeline.two_layers) return of_loops.insert(s.covers.begin(), s.covers.end());
  search::KnownDefect defect{s.engine.as_of, std::nullopt, {}, search::engine_of(s), &framework_of(s)};
  for (const ExpectedFinding& f : s.expect.findings)
    if (const auto c = ref::finding_class_named(f.finding)) defect.classes.push_back(*c);
  if (!s.twin_of.empty()) {
    const auto twin = load(loaded.path.parent_path() / s.twin_of, options, Use::gate);
    if (twin && !((*twin)->scenario.engine.as_of == s.engine.as_of)) defect.without = (*twin)->scenario.engine.as_of;
    if (!search::shown_by(s, defect)) defect.without.reset();  // the twin is clean for another reason
  }
  for (const std::string& id : s.covers) {
    const auto [at, fresh] = rows.try_emplace(id, KnownRow{defect, events_in(s)});
    if (fresh) continue;
    if (!at->second.defect.without && defect.without) at->second.defect = defect;
    at->second.events = std::min(at->second.events, events_in(s));
  }
}

struct RowOutcome {
  search::RowHunt hunt;
  double seconds = 0;
};

report::HuntRow row_of(const Entry& entry, const KnownRow& row, const RowOutcome& o) {
  report::HuntRow out;
  out.entry = std::string(entry.id);
  out.title = std::string(entry.title);
  out.as_of = row.defect.with.base;
  out.finding = o.hunt.finding ? std::string(name_of(*o.hunt.finding)) : "";
  out.shape = o.hunt.found ? search::shape_of(o.hunt.smallest) : "";
  out.found = o.hunt.found;
  out.cases = o.hunt.cases;
  out.seconds = o.seconds;
  out.events = o.hunt.events;
  out.events_known = row.events;
  return out;
}

}  // namespace

int fuzz_catalogue(const Options& options, const FuzzOptions& fuzz, const Output& out) {
  const auto files = verbs::scenario_files({fuzz.catalogue});
  if (!files) {
    complain({"--catalogue", files.error().text()});
    return bad_input;
  }
  std::map<std::string, KnownRow> rows;
  std::set<std::string> of_loops;
  for (const auto& file : *files) {
    const auto loaded = load(file, options, Use::gate);
    if (!loaded) {
      complain(loaded.error());
      return bad_input;
    }
    add_rows(**loaded, options, rows, of_loops);
  }
  if (rows.empty()) {
    complain({"--catalogue", "holds no scenario that shows a known defect; expected some with \"covers\" and expected findings"});
    return bad_input;
  }
  constexpr std::uint64_t seconds_default = 10, cases_max = 1u << 20;
  const std::uint64_t seconds_max = fuzz.time_s.value_or(seconds_default);
  out.print(report::HuntHead{repeat_command(options, fuzz)});
  Progress progress("beginning");
  std::size_t found = 0, hunted = 0;
  std::vector<long> excess;
  for (const Entry& entry : catalogue()) {
    const auto row = rows.find(std::string(entry.id));
    if (row == rows.end()) continue;
    ++hunted;
    progress.set(fmt::format("looking for {}, {} of {} entries before it found", entry.id, found, hunted - 1));
    const auto start = std::chrono::steady_clock::now();
    RowOutcome outcome;
    const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
    const auto cases = static_cast<std::uint32_t>(std::min(fuzz.cases.value_or(cases_max), cases_max));
    outcome.hunt =
        search::hunt_row(row->second.defect, options.seed, cases, [&] { return elapsed() > static_cast<double>(seconds_max) || Interruption::signal() != 0 || Output::failed(); });
    if (Interruption::signal() != 0 && !outcome.hunt.found) {
      --hunted;
      break;
    }
    outcome.seconds = elapsed();
    found += outcome.hunt.found;
    if (outcome.hunt.found) excess.push_back(static_cast<long>(outcome.hunt.events) - static_cast<long>(row->second.events));
    progress.aside([&] { out.print(row_of(entry, row->second, outcome)); });
  }
  std::erase_if(of_loops, [&](const std::string& id) { return rows.contains(id); });
  std::sort(excess.begin(), excess.end());
  report::HuntSummary summary{.rows = hunted, .found = found, .of_loops = of_loops.size()};
  if (!excess.empty()) summary.events_above_known = excess[excess.size() / 2];
  progress.aside([&] { out.print(summary); });
  return Interruption::exit_code_or(found == hunted ? clean : findings);
}

}  // namespace gradledger::tool
