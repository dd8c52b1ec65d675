// Gates, searches and listings, as the page draws them: tables, and a matrix of mutants.
#include <map>
#include <set>

#include <fmt/format.h>

#include "report/html/html.h"
#include "report/html/parts.h"
#include "report/words.h"

namespace gradledger::report {
namespace {

std::vector<std::string> details_of(const GateRow& row) {
  std::vector<std::string> out;
  for (const Problem& problem : row.unmet) out.push_back(problem.text);
  for (const GateRow::Accepted& a : row.accepted) out.push_back(fmt::format("accepted until {}: {}: {}", a.expires, a.finding, a.reason));
  for (const std::string& name : row.vanished) out.push_back(fmt::format("accepted and not reported: {}; take it out of the baseline", name));
  if (row.updated) out.emplace_back("its file was updated");
  if (!row.not_run.empty()) out.push_back("not run: " + row.not_run);
  for (const Finding& f : row.findings) out.push_back(f.sentence);
  if (!row.note.empty()) out.push_back(row.note);
  for (const std::string& note : row.driver_notes) out.push_back("the driver of the real framework replaced: " + note);
  return out;
}

std::vector<std::string> found_details(const FoundRow& row) {
  std::vector<std::string> out{row.sentence};
  if (!row.blame.why.empty()) out.push_back(fmt::format("whose: {}{}. {}", name_of(row.blame.whose), row.blame.rule.empty() ? "" : " (" + row.blame.rule + ")", row.blame.why));
  if (!row.file.empty()) out.push_back("file: " + row.file);
  return out;
}

void add_found(TablePart& table, const std::vector<FoundRow>& found) {
  for (const FoundRow& row : found) {
    const std::string word = row.status.empty() ? "found" : row.status;
    if (row.gone()) table.row("right", word, {row.finding, "", "", "", "", ""}, {"file: " + row.file});
    else if (row.not_taken()) table.row("open", word, {"", "", "", "", "", ""}, found_details(row));
    else table.row("wrong", word, {row.finding, row.engine, row.shape, std::to_string(row.events), row.minimal ? "yes" : "no", std::to_string(row.alike)}, found_details(row));
  }
}

const std::vector<std::string> found_columns{"class", "engine", "smallest script", "events", "minimal", "alike"};

std::string text_of(const std::optional<std::uint64_t>& bytes) { return bytes ? size_text(*bytes) : "-"; }

}  // namespace

std::string Html::text(const GateReport& report) const {
  TablePart table("Gate", {"scenario", "expected", "reported", "file"});
  for (const GateRow& row : report.rows)
    table.row(row.failed()   ? "wrong"
              : row.passed() ? "right"
                             : "open",
              row.failed()   ? "FAILED"
              : row.passed() ? "ok"
                             : "not run",
              {row.scenario, row.expected, row.reported, row.file}, details_of(row));
  table.say(fmt::format("{} passed, {} failed, {} not run", report.passed(), report.failed(), report.not_run()));
  if (!report.ended_by.empty()) table.say("ended by " + report.ended_by);
  return table.text();
}

std::string Html::text(const MutantReport& report) const {
  ordered_json out{{"kind", "matrix"}, {"title", "Faults planted in engines"}, {"corner", "fault"}};
  std::vector<std::string> mutants;
  std::set<std::string> engines;
  std::map<std::pair<std::string, std::string>, const MutantRow*> cell;
  for (const MutantRow& row : report.rows) {
    if (mutants.empty() || mutants.back() != row.mutant) mutants.push_back(row.mutant);
    engines.insert(row.engine);
    cell[{row.mutant, row.engine}] = &row;
  }
  out["columns"] = engines;
  out["rows"] = ordered_json::array();
  for (const std::string& mutant : mutants) {
    ordered_json cells = ordered_json::array();
    for (const std::string& engine : engines) {
      const auto at = cell.find({mutant, engine});
      if (at == cell.end()) cells.push_back(nullptr);
      else if (at->second->found)
        cells.push_back({"right", fmt::format("{}", at->second->cases), fmt::format("found within {} cases: {}", at->second->cases, names_of(at->second->reported))});
      else cells.push_back({"wrong", "ALIVE", fmt::format("survives {} cases; fitting would be {}", at->second->cases, names_of(at->second->fitting))});
    }
    out["rows"].push_back({{"name", mutant}, {"cells", cells}});
  }
  out["sentences"] = {fmt::format("{} faults, planted {} times: {} found, {} alive", report.mutants(), report.rows.size(), report.found(), report.alive()),
                      "a number is how many cases it took to find the fault in that engine; an empty cell means that the engine has no place for it"};
  return json_line(out);
}

std::string Html::text(const CoverageReport& report) const {
  TablePart table("Known defects", {"entry", "expected", "scenarios that show it", "clean scenarios", "verdict"});
  for (const CoverageRow& row : report.rows) {
    std::vector<std::string> details;
    for (const std::string& name : row.defective) details.push_back("shows it: " + name);
    for (const std::string& name : row.clean) details.push_back("clean: " + name);
    const std::string verdict = verdict_text(row);
    table.row(!row.problem.empty() ? "wrong"
              : row.covered()      ? "right"
                                   : "open",
              !row.problem.empty() ? "open"
              : row.covered()      ? "covered"
                                   : "not covered",
              {std::string(row.entry->id), classes_text(*row.entry), std::to_string(row.defective.size()), std::to_string(row.clean.size()), verdict}, details);
  }
  table.say(fmt::format("{} entries, {} scenarios, {} open", report.rows.size(), report.scenarios, report.open()));
  return table.text();
}

std::string Html::text(const Listing& listing) const {
  TablePart table(listing.what, listing.table.at(0));
  for (std::size_t i = 1; i < listing.table.size(); ++i) table.row("right", "", listing.table[i]);
  return table.text();
}

std::string Html::text(const AccountingSummary& summary) const {
  TablePart table("Memory of gradients and what is sent, scenario by scenario",
                  {"stage", "mode", "backwards", "peak in the window", "resident in the window", "peak in the flush", "resident after the flush", "collectives", "sent"});
  for (const AccountingRow& row : summary.rows)
    table.row("right", "",
              {row.stage ? std::to_string(*row.stage) : "-", row.mode, std::to_string(row.backwards), size_text(row.peak_window_bytes), size_text(row.resident_window_bytes),
               text_of(row.peak_flush_bytes), text_of(row.resident_flush_bytes), std::to_string(row.gradient.count), size_text(row.gradient.bytes)});
  table.command(summary.command);
  return table.text();
}

std::string Html::text(const ProducersReport& report) const {
  TablePart table("Two producers beside each other", {"scenario", "producers", "result"});
  table.row(report.equal ? "right" : "wrong", report.equal ? "equal" : "different", {report.scenario, report.compare, report.text});
  return table.text();
}

std::string Html::text(const FuzzReport& r) const {
  TablePart table("Campaign", found_columns);
  table.command(r.command);
  add_found(table, r.found);
  for (const BrokenCase& broken : r.broken) table.row("wrong", "internal error", {broken.what, "", "", "", "", ""}, {"drawn again by: " + broken.command});
  table.say(fmt::format("{} cases of {} events, {} of them judged in full; {} values compared; {:.1f} s", r.cases, r.events, r.judged, r.compared, r.seconds));
  if (r.found.empty()) table.say("nothing was found");
  if (!r.ended_by.empty()) table.say(fmt::format("ended by {}: the cases from {} on are left", r.ended_by, r.next));
  if (r.not_run > 0) table.say(fmt::format("{} cases were not run: the framework or its driver does not take them", r.not_run));
  if (r.nondeterminism) table.say("two runs of one case differ: " + *r.nondeterminism);
  table.say(r.canary ? fmt::format("a fault that was planted on purpose was found after {} cases", *r.canary) : std::string("a fault that was planted on purpose was NOT found"));
  return table.text();
}

std::string Html::text(const DifferenceRow& row) const {
  TablePart table("Differences", {"one side", "other side", "smallest script"});
  std::vector<std::string> details{row.text};
  for (const std::string& file : row.files) details.push_back("file: " + file);
  table.row("wrong", "different", {row.one, row.other, row.shape}, details);
  return table.text();
}

std::string Html::text(const DifferSummary& s) const {
  TablePart table("Differences", {"one side", "other side", "smallest script"});
  table.command(s.command);
  table.say(fmt::format("{} cases, {} values compared, {} cases differ", s.cases, s.compared, s.differing));
  if (!s.ended_by.empty()) table.say("ended by " + s.ended_by);
  return table.text();
}

std::string Html::text(const HuntRow& row) const {
  TablePart table("Known defects, looked for from nothing", {"entry", "as of", "class", "cases", "events", "events known", "smallest script"});
  table.row(row.found ? "right" : "wrong", row.found ? "found" : "not found",
            {row.entry, row.as_of, row.finding, std::to_string(row.cases), std::to_string(row.events), std::to_string(row.events_known), row.shape}, {row.title});
  return table.text();
}

std::string Html::text(const HuntSummary& s) const {
  TablePart table("Known defects, looked for from nothing", {"entry", "as of", "class", "cases", "events", "events known", "smallest script"});
  table.say(fmt::format("{} of {} found; in the median, the smallest script has {} events more than the shortest known one", s.found, s.rows, s.events_above_known));
  return table.text();
}

std::string Html::text(const ExploreReport& r) const {
  TablePart table("All sequences of events", found_columns);
  add_found(table, r.found);
  table.say(fmt::format("{} as of {}: {} of {} events at most{}; {} states, {} transitions, {} values compared; {:.1f} s", r.engine, r.as_of,
                        r.complete ? "all sequences" : "NOT all sequences", r.length, r.found.empty() ? ", and nothing was found" : "", r.states, r.transitions, r.compared,
                        r.seconds));
  return table.text();
}

std::string Html::text(const OrdersReport& r) const {
  TablePart table("All orders of the streams", {"values", "memory", "order: rank and stream of each step"});
  for (const OrderOutcome& w : r.witnesses)
    table.row(r.outcomes_in_values > 1 ? "wrong" : "right", "outcome", {fmt::format("{:016x}", w.values), fmt::format("{:016x}", w.memory), w.order.substr(0, 200)}, {w.order});
  table.say(fmt::format("{}: {}, {} outcomes in values and {} in memory, {} states; {}", r.scenario, r.complete ? "every order was followed" : "NOT every order was followed",
                        r.outcomes_in_values, r.outcomes, r.states, r.agreement));
  if (r.deadlock) table.say("ranks wait for each other for ever, in every order");
  if (r.receives_pass) table.say(std::string(receives_pass_text));
  if (r.mismatch) table.say("ranks meet with different calls: nothing was searched");
  for (const RaceRecord& race : r.races)
    table.say(fmt::format("race on rank {}: {} and {} touch {}[{}:{}]", race.rank, race.first.operation, race.second.operation, race.buffer, race.begin, race.end));
  return table.text();
}

// What each release, each change and each cell of a matrix came to, a row each.
std::string Html::text(const AuditReport& r) const {
  TablePart table(fmt::format("Audit of {} {}, loop {}", r.framework, r.release, r.loop), {"what", "is", "verdict"});
  table.command(r.command);
  const bool affected = r.outcome == AuditOutcome::affected;
  std::vector<std::string> details;
  for (const AuditEffect& effect : r.effects) details.push_back(effect.sentence);
  details.insert(details.end(), r.meaning.begin(), r.meaning.end());
  table.row(affected ? "wrong" : "right", std::string(name_of(r.outcome)), {"this set-up", r.release, r.verdict}, details);
  for (const AuditReleases& some : r.releases)
    table.row(some.affected ? "wrong" : "right",
              !some.judged    ? "not judged"
              : some.affected ? "affected"
                              : "not affected",
              {"releases of " + some.package, some.releases, some.verdict});
  for (const AuditAdvice& advice : r.advice) table.row(advice.clean ? "right" : "wrong", advice.clean ? "helps" : "does not help", {"a change", advice.says, advice.verdict});
  for (const AuditMatrix& matrix : r.matrices)
    for (const AuditMatrix::Row& row : matrix.rows)
      for (std::size_t c = 0; c < row.cells.size(); ++c)
        table.row(row.cells[c] == "clean" ? "right" : "wrong", row.cells[c] == "clean" ? "not affected" : "see the verdict", {row.name, matrix.columns.at(c), row.cells[c]});
  for (const std::string& left : r.not_judged) table.say("not judged: " + left);
  return table.text();
}

}  // namespace gradledger::report
