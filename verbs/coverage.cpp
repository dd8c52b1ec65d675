#include "verbs/coverage.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "verbs/expectations.h"
#include "verbs/scenario_files.h"

namespace gradledger::verbs {
namespace {

namespace fs = std::filesystem;

std::string text_of(const std::set<std::string>& names) { return names.empty() ? "clean" : fmt::format("{}", fmt::join(names, ", ")); }

std::set<std::string> classes_of(const Entry& entry) {
  std::set<std::string> out;
  for (const std::string_view name : entry.classes)
    if (!name.empty()) out.insert(std::string(name));
  return out;
}

CoveringScenario described(const Loaded& loaded, const fs::path& folder) {
  CoveringScenario out;
  out.path = loaded.path;
  out.label = loaded.path.lexically_relative(folder.lexically_normal()).replace_extension().string();
  out.covers.insert(loaded.scenario.covers.begin(), loaded.scenario.covers.end());
  if (!loaded.scenario.twin_of.empty()) out.twin = (loaded.path.parent_path() / loaded.scenario.twin_of).lexically_normal();
  for (const ExpectedFinding& finding : loaded.scenario.expect.findings) out.expected.insert(finding.finding);
  out.reported = out.expected;
  return out;
}

// A clean scenario that names a covering one as its twin, or is named by it, covers the same.
void share_with_twins(std::vector<CoveringScenario>& all) {
  std::map<fs::path, CoveringScenario*> by_path;
  for (CoveringScenario& s : all) by_path[s.path] = &s;
  std::vector<std::pair<CoveringScenario*, std::set<std::string>>> shared;
  for (CoveringScenario& s : all) {
    const auto twin = by_path.find(s.twin);
    if (twin == by_path.end()) continue;
    for (auto [from, to] : {std::pair{&s, twin->second}, std::pair{twin->second, &s}})
      if (!from->expected.empty() && to->expected.empty()) shared.emplace_back(to, from->covers);
  }
  for (auto& [to, covers] : shared) to->covers.merge(covers);
}

// The scenarios of an entry.
struct Covered {
  const Entry* entry = nullptr;
  std::vector<const CoveringScenario*> defects;  // report something
  std::vector<const CoveringScenario*> clean;    // report nothing
  std::set<std::string> reported;
};

// Why an entry is open.
std::string problem_of(const Covered& row) {
  const std::set<std::string> wanted = classes_of(*row.entry);
  if (row.defects.empty() && row.clean.empty()) return row.entry->not_covered.empty() ? "no scenario, and no reason for having none" : "";
  if (!row.entry->not_covered.empty()) return "has scenarios, and a reason for having none";
  for (const auto* group : {&row.defects, &row.clean})
    for (const CoveringScenario* s : *group)
      if (!s->unmet.empty()) return s->label + ": " + s->unmet.front().text;
  if (wanted.empty()) return row.defects.empty() ? "" : row.defects.front()->label + " reports " + text_of(row.reported);
  for (const CoveringScenario* s : row.defects)
    if (std::none_of(wanted.begin(), wanted.end(), [&](const std::string& name) { return s->reported.contains(name); })) return s->label + " reports " + text_of(s->reported);
  for (const std::string& name : wanted)
    if (!row.reported.contains(name)) return "no scenario reports " + name;
  return row.clean.empty() ? "no clean twin" : "";
}

std::vector<std::string> labels_of(const std::vector<const CoveringScenario*>& scenarios) {
  std::vector<std::string> out;
  for (const CoveringScenario* s : scenarios) out.push_back(s->label);
  return out;
}

}  // namespace

Result<std::vector<CoveringScenario>> covering_scenarios(const fs::path& folder, const Options& options) {
  const auto files = scenario_files({folder.string()});
  if (!files) return files.error();
  std::vector<CoveringScenario> out;
  for (const fs::path& file : *files) {
    const auto loaded = load(file, options, Use::gate);
    if (!loaded) return loaded.error();
    out.push_back(described(**loaded, folder));
  }
  share_with_twins(out);
  std::erase_if(out, [](const CoveringScenario& s) { return s.covers.empty(); });
  if (out.empty()) return InputError{folder.string(), "holds no scenario that covers an entry; expected some with the key \"covers\""};
  return out;
}

std::optional<InputError> judge_all(std::vector<CoveringScenario>& scenarios, const Options& options) {
  for (CoveringScenario& s : scenarios) {
    const auto loaded = load(s.path, options, Use::gate);
    if (!loaded) return loaded.error();
    try {
      s.reported.clear();
      if ((*loaded)->scenario.expect.accounting_only) {
        s.unmet = unmet_in_dry_run(**loaded, options);
        continue;
      }
      const Held held = run_for_expectations(**loaded, options);
      for (const ref::Finding& finding : held.verdict.findings) s.reported.insert(std::string(name_of(finding.finding)));
      s.unmet = unmet(**loaded, held);
    } catch (const ProgramsTooLarge&) {
      return programs_too_large(**loaded, options);
    }
  }
  return std::nullopt;
}

std::vector<report::CoverageRow> coverage_of(const std::vector<CoveringScenario>& scenarios) {
  std::vector<report::CoverageRow> out;
  for (const Entry& entry : catalogue()) {
    Covered row{&entry, {}, {}, {}};
    for (const CoveringScenario& s : scenarios) {
      if (!s.covers.contains(std::string(entry.id))) continue;
      (s.expected.empty() ? row.clean : row.defects).push_back(&s);
      row.reported.insert(s.reported.begin(), s.reported.end());
    }
    out.push_back({&entry, labels_of(row.defects), labels_of(row.clean), row.reported, problem_of(row)});
  }
  return out;
}

}  // namespace gradledger::verbs
