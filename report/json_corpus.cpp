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

std::string Json::text(const GateRow& row) const {
  ordered_json out = record("gate", row.command);
  out["scenario"] = row.scenario;
  out["file"] = row.file;
  out["passed"] = row.passed();
  out["expected"] = row.expected;
  out["reported"] = row.reported;
  out["problems"] = ordered_json::array();
  for (const Problem& problem : row.unmet) out["problems"].push_back(problem_json(row.file, problem));
  out["findings"] = findings_json(row.findings, row.found_in());
  out["engine"] = or_null(row.engine);
  out["as_of"] = or_null(row.as_of);
  out["producer"] = or_null(row.producer);
  out["seed"] = row.seed;
  out["seconds"] = row.seconds;
  out["error"] = or_null(std::string(error_of(row)));
  out["not_run"] = or_null(row.not_run);
  out["overrides"] = overrides_json(row.overrides);
  out["accepted"] = ordered_json::array();
  for (const GateRow::Accepted& a : row.accepted) out["accepted"].push_back({{"class", a.finding}, {"reason", a.reason}, {"expires", a.expires}});
  out["vanished"] = row.vanished;
  out["updated"] = row.updated;
  out["replaced"] = row.driver_notes;
  out["weights_compared"] = row.weights_compared;
  return json_line(out);
}

std::string Json::text(const MutantReport& report) const {
  std::string out;
  for (const MutantRow& row : report.rows) {
    ordered_json one = record("mutant");
    one.update({{"mutant", row.mutant}, {"engine", row.engine}, {"found", row.found}, {"cases", row.cases}, {"reported", ordered_json::array()}});
    for (const ref::FindingClass reported : row.reported) one["reported"].push_back(name_of(reported));
    out += json_line(one);
  }
  return out;
}

std::string Json::text(const CoverageReport& report) const {
  std::string out;
  for (const CoverageRow& row : report.rows) {
    ordered_json line = record("entry");
    line["entry"] = row.entry->id;
    line["expected"] = ordered_json::array();
    for (const std::string_view name : row.entry->classes)
      if (!name.empty()) line["expected"].push_back(name);
    line["reported"] = row.reported;
    line["defective"] = row.defective;
    line["clean"] = row.clean;
    line["verdict"] = verdict_text(row);
    line["not_covered"] = or_null(std::string(row.entry->not_covered));
    out += json_line(line);
  }
  return out;
}

std::string Json::text(const Listing& listing) const {
  ordered_json out = record("table");
  out["list"] = listing.what;
  out["rows"] = ordered_json::array();
  for (std::size_t r = 1; r < listing.table.size(); ++r) {
    ordered_json row;
    for (std::size_t c = 0; c < listing.table[r].size(); ++c) row[listing.table[0][c]] = listing.table[r][c];
    out["rows"].push_back(std::move(row));
  }
  return json_line(out);
}

}  // namespace gradledger::report
