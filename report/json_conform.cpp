// Recorded runs as JSON.
#include "report/json.h"
#include "report/json_parts.h"

namespace gradledger::report {

std::string Json::text(const TraceRow& row) const {
  ordered_json out = record("trace");
  out["trace"] = row.file;
  out["scenario"] = row.scenario;
  out["producer"] = row.producer;
  out["passes"] = row.passes;
  out["judge"] = row.command;
  out["seconds"] = row.seconds;
  return json_line(out);
}

std::string Json::text(const ConformRow& row) const {
  ordered_json out = record("run");
  out["run"] = row.run;
  out["version"] = row.version;
  out["outcome"] = name_of(row.outcome);
  out["why"] = or_null(row.why);
  out["elements_compared"] = row.elements;
  out["collectives_compared"] = row.collectives;
  return json_line(out);
}

std::string Json::text(const NotJudgedRow& row) const {
  ordered_json out = record("not-judged");
  out["run"] = row.run;
  out["version"] = row.version;
  out["why"] = row.why;
  return json_line(out);
}

}  // namespace gradledger::report
