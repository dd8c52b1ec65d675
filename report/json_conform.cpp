// Recorded runs as JSON.
#include "report/json.h"
#include "report/json_parts.h"

namespace gradledger::report {

std::string Json::text(const TraceRow& row) const {
  ordered_json out = json_head(row.tool);
  out["trace"] = row.file;
  out["scenario"] = row.scenario;
  out["producer"] = row.producer;
  out["passes"] = row.passes;
  out["judge"] = row.command;
  return json_line(out);
}

std::string Json::text(const ConformRow& row) const {
  return json_line({{"run", row.run},
                    {"version", row.version},
                    {"outcome", name_of(row.outcome)},
                    {"why", row.why},
                    {"elements_compared", row.elements},
                    {"collectives_compared", row.collectives}});
}

std::string Json::text(const ConformSummary& s) const {
  ordered_json out = json_head(s.tool);
  out["agree"] = s.agree;
  out["agree_in_part"] = s.in_part;
  out["differ"] = s.differ;
  out["cannot_be_expressed"] = s.inexpressible;
  out["cannot_be_read"] = s.unreadable;
  out["elements_compared"] = s.elements;
  out["collectives_compared"] = s.collectives;
  return json_line(out);
}

std::string Json::text(const NotJudgedRow& row) const { return json_line({{"record", "not judged"}, {"run", row.run}, {"version", row.version}, {"why", row.why}}); }

std::string Json::text(const JudgeSummary& s) const {
  ordered_json out = json_head(s.tool, "summary");
  out["clean"] = s.clean;
  out["with_findings"] = s.with_findings;
  out["not_judged"] = s.not_judged;
  out["cannot_be_read"] = s.unreadable;
  out["snapshots_judged"] = s.snapshots;
  out["snapshots_not_judged"] = s.snapshots_not_judged;
  out["elements_judged"] = s.elements;
  out["unexplained"] = s.unexplained;
  out["runs_by_class"] = s.classes;
  if (s.of_recordings) out["recordings_do_not_tell"] = recordings_do_not_tell;
  return json_line(out);
}

}  // namespace gradledger::report
