#include "report/summary.h"

#include <algorithm>
#include <charconv>
#include <set>

namespace gradledger::report {
namespace {

// ":3" at the end of a text, which is cut off.
std::size_t take_number(std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size()) return 0;
  std::size_t number = 0;
  const auto [end, failed] = std::from_chars(text.data() + colon + 1, text.data() + text.size(), number);
  if (failed != std::errc{} || end != text.data() + text.size()) return 0;
  text.resize(colon);
  return number;
}

bool is_word_of_capitals(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return (c >= 'A' && c <= 'Z') || c == '_'; });
}

// What a text begins with, up to ": ", which is cut off with it.
std::string take_until_colon(std::string& text) {
  const std::size_t colon = text.find(": ");
  if (colon == std::string::npos) return "";
  const std::string out = text.substr(0, colon);
  text = text.substr(colon + 2);
  return out;
}

}  // namespace

ErrorRow error_row(const InputError& error, int exit_code) {
  ErrorRow out;
  out.exit_code = exit_code;
  out.message = error.message;
  std::string where = error.where;
  if (where.empty() && out.message.starts_with("-") && out.message.find(' ') > out.message.find(": ")) where = take_until_colon(out.message);
  if (where.starts_with("-") || is_word_of_capitals(where)) {
    out.option = where;
    return out;
  }
  if (const std::size_t pointer = where.rfind(": /"); pointer != std::string::npos) {
    out.pointer = where.substr(pointer + 2);
    where.resize(pointer);
  }
  const std::size_t last = take_number(where), before = take_number(where);
  out.at = before > 0 ? Position{before, last} : Position{last, 0};
  out.file = where;
  return out;
}

void Summary::count(const std::string& name, std::int64_t more) {
  const auto there = std::find_if(counts.begin(), counts.end(), [&](const auto& entry) { return entry.first == name; });
  if (there == counts.end()) counts.emplace_back(name, more);
  else there->second += more;
}

template <class Number>
void Summary::set(std::initializer_list<std::pair<const char*, Number>> all) {
  counts.clear();
  for (const auto& [name, number] : all) counts.emplace_back(name, static_cast<std::int64_t>(number));
}

void Summary::add_classes(const std::vector<Finding>& findings) {
  std::set<std::string> once;
  for (const Finding& f : findings) once.insert(std::string(name_of(f.finding)));
  for (const std::string& name : once) ++classes[name];
}

void Summary::add(const Report& report) {
  const Outcome outcome = report.outcome();
  count("scenarios", 1);
  count("clean", outcome == Outcome::clean);
  count("with_findings", outcome == Outcome::findings);
  count("nothing_judged", outcome == Outcome::nothing_judged);
  add_classes(report.findings);
}

void Summary::add(const AccountingReport&) { count("scenarios", 1); }

void Summary::add(const ProducersReport& report) {
  count("scenarios", 1);
  count("equal", report.equal);
  count("not_compared", report.races);
}

void Summary::add(const GateRow& row) { add_classes(row.findings); }

void Summary::add(const MergedGateRow& row) {
  for (const auto& [name, scenarios] : row.classes) classes[name] += scenarios;
}

void Summary::add(const GateReport& r) {
  std::size_t accepted = 0;
  for (const GateRow& row : r.rows) accepted += row.accepted.size();
  set<std::size_t>({{"scenarios", r.files},
                    {"passed", r.passed()},
                    {"failed", r.failed()},
                    {"not_run", r.not_run()},
                    {"accepted_findings", accepted},
                    {"deselected", r.deselected},
                    {"left_out", r.left_out.size()},
                    {"unused_in_baseline", r.unused.size() + r.unused_untold}});
  ended_by = r.ended_by;
}

void Summary::add(const MutantReport& r) { set<std::size_t>({{"mutants", r.mutants()}, {"planted", r.rows.size()}, {"found", r.found()}, {"alive", r.alive()}}); }

void Summary::add(const CoverageReport& r) {
  set<std::size_t>({{"entries", r.rows.size()}, {"scenarios", r.scenarios}, {"open", r.open()}, {"pages_out_of_date", r.outdated_page.empty() ? 0u : 1u}});
}

void Summary::add(const Listing& listing) { set<std::size_t>({{"rows", listing.table.size() - 1}}); }

void Summary::add(const TraceRow& row) { set<std::uint64_t>({{"passes", row.passes}}); }

void Summary::add(const ConformSummary& s) {
  set<std::uint64_t>({{"agree", s.agree},
                      {"agree_in_part", s.in_part},
                      {"differ", s.differ},
                      {"cannot_be_expressed", s.inexpressible},
                      {"cannot_be_read", s.unreadable},
                      {"elements_compared", s.elements},
                      {"collectives_compared", s.collectives}});
}

void Summary::add(const JudgeSummary& s) {
  set<std::uint64_t>({{"clean", s.clean},
                      {"with_findings", s.with_findings},
                      {"not_judged", s.not_judged},
                      {"cannot_be_read", s.unreadable},
                      {"snapshots_judged", s.snapshots},
                      {"snapshots_not_judged", s.snapshots_not_judged},
                      {"elements_judged", s.elements},
                      {"unexplained", s.unexplained}});
}

void Summary::add(const FoundRow& row) {
  if (!row.gone() && !row.not_taken()) ++classes[row.finding];
}

void Summary::add(const FuzzReport& r) {
  std::uint64_t found = 0;
  for (const FoundRow& row : r.found) found += !row.gone() && !row.not_taken();
  set<std::uint64_t>({{"findings", found},
                      {"internal_errors", r.broken.size()},
                      {"cases", r.cases},
                      {"events", r.events},
                      {"rank_events", r.rank_events},
                      {"operations", r.operations},
                      {"compared", r.compared},
                      {"suspicious", r.suspicious},
                      {"judged", r.judged},
                      {"reruns", r.reruns},
                      {"not_run", r.not_run}});
  ended_by = r.ended_by;
}

void Summary::add(const DifferSummary& s) {
  set<std::uint64_t>({{"cases", s.cases}, {"compared", s.compared}, {"differing", s.differing}, {"unlike", s.unlike}});
  ended_by = s.ended_by;
}

void Summary::add(const HuntSummary& s) {
  set<std::int64_t>({{"entries", static_cast<std::int64_t>(s.rows)},
                     {"found", static_cast<std::int64_t>(s.found)},
                     {"of_loops", static_cast<std::int64_t>(s.of_loops)},
                     {"median_events_above_known", s.events_above_known}});
}

void Summary::add(const ExploreReport& r) {
  count("engines", 1);
  count("complete", r.complete);
  count("findings", static_cast<std::int64_t>(r.found.size()));
  for (const FoundRow& row : r.found) add(row);
}

void Summary::add(const OrdersReport& r) { set<std::uint64_t>({{"outcomes", r.outcomes}, {"outcomes_in_values", r.outcomes_in_values}, {"races", r.races.size()}}); }

void Summary::add(const AuditReport& r) {
  std::uint64_t found = 0;
  for (const Finding& f : r.findings) found += f.occurrences;
  set<std::uint64_t>({{"findings", found}, {"judged_runs", r.judged_runs}, {"runs_alike", r.runs_alike}});
  add_classes(r.findings);
}

}  // namespace gradledger::report
