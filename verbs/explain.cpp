#include "verbs/explain.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "report/words.h"
#include "sim/scenario/spelling.h"
#include "verbs/class_help.h"
#include "verbs/command.h"
#include "verbs/coverage.h"
#include "verbs/replay.h"

namespace gradledger::verbs {
namespace {

using report::Listing;

constexpr std::size_t named_max = 8;

std::string as_list(std::vector<std::string> names) {
  const std::size_t more = names.size() > named_max ? names.size() - named_max : 0;
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "), more > 0 ? fmt::format(", and {} more", more) : "");
}

bool has_class(const Entry& entry, std::string_view name) { return std::find(entry.classes.begin(), entry.classes.end(), name) != entry.classes.end(); }

Listing of_class(const ref::FindingClassInfo& info) {
  Listing out{.what = std::string(info.name), .table = {{"topic", "text"}, {"class", std::string(info.name)}}};
  out.table.push_back({"meaning", fmt::format("{}.", info.meaning)});
  out.table.push_back({"in a ledger", fmt::format("{}.", info.seen_as)});
  for (const ClassHelp& help : class_help()) {
    if (ref::name_of(help.finding) != info.name) continue;
    out.table.push_back({"in training", std::string(help.effect)});
    out.table.push_back({"causes", std::string(help.causes)});
    out.table.push_back({"what to do", std::string(help.cure)});
  }
  std::vector<std::string> known;
  for (const Entry& entry : catalogue())
    if (has_class(entry, info.name)) known.push_back(fmt::format("{}{}", entry.id, entry.origin.empty() ? "" : fmt::format(" ({})", entry.origin)));
  if (!known.empty()) out.table.push_back({"known", as_list(known)});
  return out;
}

// What replaying a scenario of an entry says of it; nothing where it is not a known defect of a release.
void add_releases(const std::filesystem::path& file, const Entry& entry, const Options& options, Listing& out) {
  const auto loaded = load(file, options);
  if (!loaded) return;
  for (const report::Finding& finding : replay(**loaded, options).findings) {
    if (!finding.known || finding.known->entry != entry.id) continue;
    const ref::KnownDefect& known = *finding.known;
    out.table.push_back({"since", known.since.empty() ? "not known" : known.since});
    out.table.push_back({"fixed in", known.fixed.empty() ? "no release" : known.fixed});
    if (!known.avoid.empty()) out.table.push_back({"to avoid it", known.avoid});
    return;
  }
}

Result<Listing> of_entry(const Entry& entry, const std::filesystem::path& corpus, const Options& options) {
  Listing out{.what = std::string(entry.id), .table = {{"topic", "text"}, {"entry", fmt::format("{} {}", entry.id, entry.name)}}};
  out.table.push_back({"what", std::string(entry.title)});
  if (!entry.origin.empty()) out.table.push_back({"reported as", std::string(entry.origin)});
  out.table.push_back({"classes", classes_text(entry)});
  out.table.push_back({"evidence", entry.evidence == Evidence::recorded ? "a recorded run of the framework shows it" : "read in the framework's source"});
  if (!entry.not_covered.empty()) out.table.push_back({"no scenario", std::string(entry.not_covered)});
  std::error_code missing;
  if (!std::filesystem::is_directory(corpus, missing)) {
    out.table.push_back({"scenarios", fmt::format("not looked for: there is no folder {}; --scenarios names it", corpus.string())});
    return out;
  }
  auto scenarios = covering_scenarios(corpus, options);
  if (!scenarios) return scenarios.error();
  std::vector<std::string> showing, clean;
  std::filesystem::path first;
  for (const CoveringScenario& s : *scenarios) {
    if (!s.covers.contains(std::string(entry.id))) continue;
    (s.expected.empty() ? clean : showing).push_back(s.label);
    if (!s.expected.empty() && first.empty()) first = s.path;
  }
  if (!first.empty()) add_releases(first, entry, options, out);
  if (!showing.empty()) out.table.push_back({"shown by", as_list(showing)});
  if (!clean.empty()) out.table.push_back({"not in", as_list(clean)});
  if (!first.empty()) out.table.push_back({"see it", fmt::format("gradledger replay {}", shell_word(first.string()))});
  return out;
}

}  // namespace

Result<Listing> explain(const std::string& name, const std::filesystem::path& corpus, const Options& options) {
  std::vector<std::string> known;
  for (const ref::FindingClassInfo& info : ref::finding_classes()) {
    if (info.name == name) return of_class(info);
    known.emplace_back(info.name);
  }
  for (const Entry& entry : catalogue()) {
    if (entry.id == name || entry.name == name) return of_entry(entry, corpus, options);
    known.emplace_back(entry.id);
    known.emplace_back(entry.name);
  }
  return InputError{"WHAT",
                    fmt::format("{} is no class and no entry; expected one that `gradledger list findings` or `gradledger list entries` shows{}", name, suggestion(name, known))};
}

}  // namespace gradledger::verbs
