// Gates, coverage and listings for people.
#include <algorithm>

#include <fmt/format.h>

#include "report/terminal.h"
#include "report/words.h"

namespace gradledger::report {

std::string Terminal::text(const GateRow&) const { return ""; }  // the table is as wide as its widest row

std::string Terminal::text(const GateReport& report) const {
  std::size_t width = 8, expected_width = 8;
  for (const GateRow& row : report.rows) {
    width = std::max(width, row.scenario.size());
    expected_width = std::max(expected_width, row.expected.size());
  }
  std::string out = fmt::format("{:6}  {:<{}}  {:<{}}  {}\n", "", "scenario", width, "expected", expected_width, "reported");
  for (const GateRow& row : report.rows) {
    if (style_.detail == Detail::verdict && row.passed() && row.vanished.empty()) continue;
    out += fmt::format("{:6}  {:<{}}  {:<{}}  {}\n", row.failed() ? "FAILED" : row.passed() ? "ok" : "not run", row.scenario, width, row.expected, expected_width, row.reported);
    for (const Problem& problem : row.unmet) out += fmt::format("        {}{}\n", place_before(row.file, problem), problem.text);
    for (const GateRow::Accepted& a : row.accepted) out += fmt::format("        accepted until {}: {}: {}\n", a.expires, a.finding, a.reason);
    for (const std::string& name : row.vanished) out += fmt::format("        accepted and not reported: {}; take it out of the baseline\n", name);
    if (row.updated) out += fmt::format("        updated: {}\n", row.file);
    if (!row.not_run.empty()) out += fmt::format("        not run: {}\n", row.not_run);
  }
  for (const std::string& name : report.unused) out += fmt::format("the baseline names {}, which is not among the scenarios\n", name);
  if (report.unused_untold > 0) out += fmt::format("the baseline names {} that are not among the scenarios\n", report.unused_untold);
  const auto overridden = std::find_if(report.rows.begin(), report.rows.end(), [](const GateRow& row) { return !row.overrides.empty(); });
  if (overridden != report.rows.end()) out += fmt::format("held to what the files expect, and not run as they say: {}\n", overrides_text(overridden->overrides));
  if (!report.ended_by.empty()) out += fmt::format("ended by {}\n", report.ended_by);
  out += fmt::format("{} passed, {} failed", report.passed(), report.failed());
  if (report.not_run() > 0) out += fmt::format(", {} not run", report.not_run());
  if (report.deselected > 0) out += fmt::format(", {} not selected", report.deselected);
  if (!report.left_out.empty()) out += fmt::format(", {} left out", report.left_out.size());
  return fit(out + "\n");
}

std::string Terminal::text(const MutantReport& report) const {
  std::string out;
  const std::vector<MutantRow>& all = report.rows;
  for (std::size_t i = 0; i < all.size();) {
    const std::string mutant = all[i].mutant;
    std::uint32_t found = 0, engines = 0, cases = 0;
    std::set<ref::FindingClass> seen;
    std::string survived;
    for (; i < all.size() && all[i].mutant == mutant; ++i, ++engines) {
      const MutantRow& row = all[i];
      found += row.found;
      cases = std::max(cases, row.cases);
      if (row.found) seen.insert(row.reported.begin(), row.reported.end());
      else survived += fmt::format("        survives in {} for {} cases; fitting would be {}\n", row.engine, row.cases, names_of(row.fitting));
    }
    out += fmt::format("{:6}  {:34} {:>2} of {} engines, within {:>3} case{}  {}\n{}", found == engines ? "found" : "ALIVE", mutant, found, engines, cases, cases == 1 ? " " : "s",
                       names_of({seen.begin(), seen.end()}), survived);
  }
  const std::size_t mutants = report.mutants();
  return fit(out + fmt::format("{} mutant{} planted in {} engines altogether: {} found, {} alive\n", mutants, mutants == 1 ? "" : "s", all.size(), report.found(), report.alive()));
}

std::string Terminal::text(const CoverageReport& report) const {
  std::size_t width = 8, expected_width = 8;
  for (const CoverageRow& row : report.rows) {
    width = std::max(width, row.entry->id.size());
    expected_width = std::max(expected_width, classes_text(*row.entry).size());
  }
  std::string out = fmt::format("{:<{}}  {:<{}}  {:>9}  {:>5}  {}\n", "entry", width, "expected", expected_width, "defective", "clean", "verdict");
  for (const CoverageRow& row : report.rows)
    out += fmt::format("{:<{}}  {:<{}}  {:>9}  {:>5}  {}\n", row.entry->id, width, classes_text(*row.entry), expected_width, row.defective.size(), row.clean.size(),
                       verdict_text(row));
  return fit(out + fmt::format("{} entries, {} scenarios, {} open{}\n", report.rows.size(), report.scenarios, report.open(),
                               report.outdated_page.empty() ? "" : "; " + report.outdated_page + " is out of date"));
}

// What a line cannot hold of the last column goes on below it, where that leaves it some room.
std::string Terminal::text(const Listing& listing) const {
  constexpr std::size_t room_min = 24;
  std::vector<std::size_t> width(listing.table.at(0).size(), 0);
  for (const Listing::Row& row : listing.table)
    for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], columns_of(row[c]));
  std::size_t before = 0;
  for (std::size_t c = 0; c + 1 < width.size(); ++c) before += width[c] + 2;
  std::string out;
  for (const Listing::Row& row : listing.table) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) line += c + 1 == row.size() ? row[c] : fmt::format("{:<{}}  ", row[c], width[c]);
    out += wrapped(line, style_.width, before + room_min <= style_.width ? before : 8) + "\n";
  }
  if (!listing.legend.empty()) out += "\n" + wrapped(listing.legend, style_.width, 0) + "\n";
  return out;
}

}  // namespace gradledger::report
