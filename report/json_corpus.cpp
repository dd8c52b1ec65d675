// Gates, coverage and listings as JSON.
#include "report/json.h"
#include "report/json_parts.h"
#include "report/words.h"

namespace gradledger::report {
namespace {

// Why there is no verdict, as the exit codes have it.
std::string_view error_of(const GateRow& row) {
  if (row.broken) return "broken run";
  if (row.bad_input) return "bad input";
  return row.unavailable ? "not available" : "";
}

ordered_json problem_json(const std::string& file, const Problem& problem) {
  ordered_json out{{"rule", problem.rule}, {"text", problem.text}, {"file", file}, {"pointer", problem.pointer}};
  out.update(position_json(problem.at));
  return out;
}

}  // namespace

std::string Json::text(const RefusedFile& refused) const {
  ordered_json out = json_head(refused.tool);
  out["command"] = refused.command;
  out["file"] = refused.file;
  out["verdict"] = "not judged";
  out["error"] = refused.unavailable ? "not available" : "bad input";
  out["problems"] = ordered_json::array();
  for (const Problem& problem : refused.problems) out["problems"].push_back(problem_json(refused.file, problem));
  return json_line(out);
}

std::string Json::text(const GateRow& row) const {
  ordered_json out = json_head(row.tool);
  out["scenario"] = row.scenario;
  out["file"] = row.file;
  out["passed"] = row.passed();
  out["expected"] = row.expected;
  out["reported"] = row.reported;
  out["unmet"] = ordered_json::array();
  out["problems"] = ordered_json::array();
  for (const Problem& problem : row.unmet) {
    out["unmet"].push_back(problem.text);
    out["problems"].push_back(problem_json(row.file, problem));
  }
  out["sentences"] = row.sentences;
  out["engine"] = row.engine;
  out["as_of"] = row.as_of;
  out["producer"] = row.producer;
  out["seed"] = row.seed;
  out["seconds"] = row.seconds;
  out["command"] = row.command;
  if (!row.overrides.empty()) out["overrides"] = overrides_json(row.overrides);
  for (const GateRow::Accepted& a : row.accepted) out["accepted"].push_back({{"class", a.finding}, {"reason", a.reason}, {"expires", a.expires}});
  if (!row.vanished.empty()) out["vanished"] = row.vanished;
  if (row.updated) out["updated"] = true;
  if (!row.not_run.empty()) out["not_run"] = row.not_run;
  if (row.weights_compared > 0) out["weights_compared"] = row.weights_compared;
  if (const std::string_view error = error_of(row); !error.empty()) out["error"] = error;
  if (!row.driver_notes.empty()) out["replaced"] = row.driver_notes;
  return json_line(out);
}

std::string Json::text(const GateReport&) const { return ""; }  // every row was a line

std::string Json::text(const MutantReport& report) const {
  std::string out;
  for (const MutantRow& row : report.rows)
    out += json_line({{"record", "mutant"}, {"mutant", row.mutant}, {"engine", row.engine}, {"found", row.found}, {"cases", row.cases}, {"reported", names_of(row.reported)}});
  ordered_json summary = json_head(report.tool, "summary");
  summary["mutants"] = report.mutants();
  summary["planted"] = report.rows.size();
  summary["found"] = report.found();
  summary["alive"] = report.alive();
  return out + json_line(summary);
}

std::string Json::text(const CoverageReport& report) const {
  std::string out;
  for (const CoverageRow& row : report.rows) {
    ordered_json line = json_head(report.tool);
    line["entry"] = row.entry->id;
    line["expected"] = classes_text(*row.entry);
    line["reported"] = row.reported;
    line["defective"] = row.defective;
    line["clean"] = row.clean;
    line["verdict"] = verdict_text(row);
    line["not_covered"] = row.entry->not_covered;
    out += json_line(line);
  }
  return out;
}

std::string Json::text(const Listing& listing) const {
  ordered_json out = json_head(listing.tool);
  out["list"] = listing.what;
  out["rows"] = ordered_json::array();
  for (std::size_t r = 1; r < listing.table.size(); ++r) {
    ordered_json row;
    for (std::size_t c = 0; c < listing.table[r].size(); ++c) row[listing.table[0][c]] = listing.table[r][c];
    out["rows"].push_back(std::move(row));
  }
  return out.dump(2) + "\n";
}

}  // namespace gradledger::report
