// docs/coverage.md: the one page that is made from a corpus.
#include <algorithm>

#include <fmt/format.h>

#include "report/corpus.h"
#include "sim/scenario/served.h"

namespace gradledger::report {
namespace {

std::string text_of(const std::set<std::string>& names) { return names.empty() ? "clean" : fmt::format("{}", fmt::join(names, ", ")); }

std::string labels_of(const std::vector<std::string>& scenarios) {
  std::string out;
  for (const std::string& label : scenarios) out += (out.empty() ? "`" : ", `") + label + "`";
  return out;
}

// Of what people reported: all of it, and what is of a framework and a release that an engine serves.
std::string reports_of(const std::vector<CoverageRow>& rows) {
  std::size_t all = 0, covered = 0, served = 0, served_and_covered = 0;
  for (const CoverageRow& row : rows) {
    if (!row.entry->id.starts_with("zoo-") && !row.entry->id.starts_with("newer-")) continue;
    ++all;
    covered += row.covered();
    if (!is_served(*row.entry)) continue;
    ++served;
    served_and_covered += row.covered();
  }
  const auto percent = [](std::size_t part, std::size_t whole) { return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole); };
  return fmt::format("Of {} reports, {} are covered ({:.1f} %); of the {} among them whose framework and release have an engine, {} ({:.1f} %).\n", all, covered,
                     percent(covered, all), served, served_and_covered, percent(served_and_covered, served));
}

std::string_view prefix_of(const Entry& entry) { return entry.id.substr(0, entry.id.find('-')); }

// Entries are named by where they come from. One that comes from elsewhere is not left out: it stands behind the others, below its own name.
std::vector<std::pair<std::string_view, std::string_view>> headings_of(const std::vector<CoverageRow>& rows) {
  std::vector<std::pair<std::string_view, std::string_view>> out{{"catalogue", "Fixed by a change"}, {"live", "At head"},        {"zoo", "Reports"}, {"newer", "Newer reports"},
                                                                 {"megatron", "Megatron-Core"},      {"mfsdp", "Megatron-FSDP"}, {"fsdp2", "FSDP2"}};
  for (const CoverageRow& row : rows) {
    const std::string_view prefix = prefix_of(*row.entry);
    if (std::none_of(out.begin(), out.end(), [&](const auto& heading) { return heading.first == prefix; })) out.emplace_back(prefix, prefix);
  }
  std::erase_if(out, [&](const auto& heading) { return std::none_of(rows.begin(), rows.end(), [&](const CoverageRow& row) { return prefix_of(*row.entry) == heading.first; }); });
  return out;
}

}  // namespace

std::string coverage_page(const std::vector<CoverageRow>& rows) {
  const auto covered = std::count_if(rows.begin(), rows.end(), [](const CoverageRow& r) { return r.covered(); });
  const auto without = std::count_if(rows.begin(), rows.end(), [](const CoverageRow& r) { return !r.covered() && r.problem.empty(); });
  const auto open = std::count_if(rows.begin(), rows.end(), [](const CoverageRow& r) { return !r.problem.empty(); });
  std::string out = fmt::format(
      "# Coverage\n\nWhich scenario shows which known defect. Made by `gradledger coverage scenarios --write docs/coverage.md`;\nwith `--check` the command fails where "
      "this page is out of date. `gradledger list entries` prints the entries; a scenario names them with the key `covers`.\n\n"
      "{} entries: {} covered by scenarios, {} not covered for a reason that is given, {} open.\n{}\n"
      "* **evidence**: `recorded` where a run of the framework showed it, `read` where it follows from the framework's source or from a report alone.\n"
      "* **expected**, **reported**: classes of [findings](findings.md). Every defective scenario reports one of those expected, all of them together report all.\n"
      "* A **clean** scenario is the twin that has the repair, the other configuration or the right calls. It must report nothing.\n"
      "* **Reports** are a collection of issues of many projects, kept by number. Where no engine serves a framework its own reduction is written out as calls of a loop.\n",
      rows.size(), covered, without, open, reports_of(rows));
  for (const auto& [prefix, heading] : headings_of(rows)) {
    out += fmt::format("\n## {}\n\n| entry | name | defect | origin | evidence | expected | reported | defective | clean | verdict |\n|---|---|---|---|---|---|---|---|---|---|\n",
                       heading);
    for (const CoverageRow& row : rows)
      if (prefix_of(*row.entry) == prefix && (row.covered() || !row.problem.empty()))
        out += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", row.entry->id, row.entry->name, row.entry->title, row.entry->origin,
                           row.entry->evidence == Evidence::recorded ? "recorded" : "read", classes_text(*row.entry), row.covered() ? text_of(row.reported) : "",
                           labels_of(row.defective), labels_of(row.clean), row.problem.empty() ? "as expected" : "open: " + row.problem);
  }
  out += "\n## Not covered\n\n| entry | name | defect | origin | why |\n|---|---|---|---|---|\n";
  for (const CoverageRow& row : rows)
    if (!row.covered() && row.problem.empty())
      out += fmt::format("| {} | {} | {} | {} | {} |\n", row.entry->id, row.entry->name, row.entry->title, row.entry->origin, row.entry->not_covered);
  return out;
}

}  // namespace gradledger::report
