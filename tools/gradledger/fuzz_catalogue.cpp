#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "search/shrink/edits.h"
#include "search/campaign/rows.h"
#include "search/shrink/shape.h"
#include "sim/frameworks/framework.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/fuzz.h"
#include "tools/gradledger/scenario_files.h"
#include "tools/gradledger/verbs.h"
#include "tools/version/version.h"

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
  if (s.expect.findings.empty() || s.expect.accounting_only) return;
  // No script that is drawn states what it means: a finding of its class would be another defect.
  if (loaded.timeline.two_layers) return of_loops.insert(s.covers.begin(), s.covers.end());
  search::KnownDefect defect{s.engine.as_of, std::nullopt, {}, search::engine_of(s)};
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

void print_row(const Entry& entry, const KnownRow& row, const RowOutcome& o, const Options& options) {
  const std::string finding = o.hunt.finding ? std::string(name_of(*o.hunt.finding)) : "";
  if (options.json) {
    fmt::print("{}\n", nlohmann::ordered_json({{"record", "row"}, {"id", entry.id}, {"as_of", row.defect.with.base}, {"found", o.hunt.found}, {"cases", o.hunt.cases}, {"seconds", o.seconds},
                                               {"class", finding}, {"events", o.hunt.events}, {"events_known", row.events}, {"shape", o.hunt.found ? search::shape_of(o.hunt.smallest) : ""}}).dump());
    return;
  }
  fmt::print("{:14} {:16} {:>7} {:>8.2f}  {:20} {:>6} {:>6}  {}\n", entry.id, row.defect.with.base, o.hunt.found ? std::to_string(o.hunt.cases) : "-", o.seconds, o.hunt.found ? finding : "NOT FOUND",
             o.hunt.found ? std::to_string(o.hunt.events) : "", row.events, o.hunt.found ? search::shape_of(o.hunt.smallest) : entry.title);
}

}  // namespace

int fuzz_catalogue(const Options& options, const FuzzOptions& fuzz) {
  const auto files = scenario_files({fuzz.catalogue});
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
  if (!options.json) fmt::print("# {}\n", repeat_command(options, fuzz));
  if (!options.json) fmt::print("{:14} {:16} {:>7} {:>8}  {:20} {:>6} {:>6}  {}\n", "entry", "as of", "cases", "seconds", "found as", "events", "known", "shape");
  std::size_t found = 0, hunted = 0;
  std::vector<long> excess;
  for (const Entry& entry : catalogue()) {
    const auto row = rows.find(std::string(entry.id));
    if (row == rows.end()) continue;
    ++hunted;
    const auto start = std::chrono::steady_clock::now();
    RowOutcome outcome;
    const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
    const auto cases = static_cast<std::uint32_t>(std::min(fuzz.cases.value_or(cases_max), cases_max));
    outcome.hunt = search::hunt_row(row->second.defect, options.seed, cases, [&] { return elapsed() > static_cast<double>(seconds_max); });
    outcome.seconds = elapsed();
    found += outcome.hunt.found;
    if (outcome.hunt.found) excess.push_back(static_cast<long>(outcome.hunt.events) - static_cast<long>(row->second.events));
    print_row(entry, row->second, outcome, options);
  }
  std::erase_if(of_loops, [&](const std::string& id) { return rows.contains(id); });
  std::sort(excess.begin(), excess.end());
  const long median = excess.empty() ? 0 : excess[excess.size() / 2];
  if (options.json) {
    const nlohmann::ordered_json summary{{"record", "summary"}, {"schema_version", 1}, {"tool", tool_json()}, {"rows", hunted}, {"found", found},
                                         {"of_loops", of_loops.size()}, {"median_events_above_known", median}};
    fmt::print("{}\n", summary.dump());
  } else {
    fmt::print("{} of {} entries found; scripts are {} event{} longer than the shortest known one, in the median\n", found, hunted, median, median == 1 ? "" : "s");
    if (!of_loops.empty()) fmt::print("{} entries are of loops that state what they mean, which no drawn script does: left out\n", of_loops.size());
  }
  return found == hunted ? clean : findings;
}

}  // namespace gradledger::tool
