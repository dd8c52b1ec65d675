// Audits as JSON: one object.
#include "report/json.h"
#include "report/json_parts.h"

namespace gradledger::report {
namespace {

ordered_json read_json(const AuditReport& r) {
  ordered_json out{{"framework", r.framework},     {"release", r.release}, {"engine", r.engine},
                   {"configuration", r.described}, {"loop", r.loop},       {"optimizer", r.optimizer},
                   {"packages", r.packages},       {"ranks", r.ranks},     {"micro_batches", r.micro_batches},
                   {"windows", r.windows},         {"model", r.model},     {"filled", ordered_json::array()},
                   {"ignored", r.ignored},         {"unknown", r.unknown}, {"notes", r.notes}};
  for (const AuditFilled& f : r.filled) out["filled"].push_back({{"file", f.file}, {"pointer", f.pointer}, {"value", f.value}, {"why", f.why}});
  return out;
}

ordered_json matrix_json(const AuditMatrix& matrix) {
  ordered_json out{{"of", matrix.corner}, {"columns", matrix.columns}, {"rows", ordered_json::array()}};
  for (const AuditMatrix::Row& row : matrix.rows) out["rows"].push_back({{"name", row.name}, {"cells", row.cells}});
  return out;
}

}  // namespace

std::string Json::text(const AuditReport& r) const {
  ordered_json out = record("audit", r.command);
  out["outcome"] = name_of(r.outcome);
  out["verdict"] = r.verdict;
  out["read"] = read_json(r);
  out["effects"] = ordered_json::array();
  for (const AuditEffect& e : r.effects) out["effects"].push_back({{"kind", e.kind}, {"sentence", e.sentence}, {"micro_batches", e.micro_batches}, {"of", e.of}});
  out["meaning"] = r.meaning;
  out["since"] = or_null(r.since);
  out["fixed"] = or_null(r.fixed);
  out["findings"] = findings_json(r.findings, {r.scenario, r.scenario_file, r.engine, r.parameters, r.seed});
  out["releases"] = ordered_json::array();
  for (const AuditReleases& x : r.releases)
    out["releases"].push_back({{"package", x.package}, {"releases", x.releases}, {"verdict", x.verdict}, {"affected", x.affected}, {"judged", x.judged}, {"current", x.current}});
  out["advice"] = ordered_json::array();
  for (const AuditAdvice& a : r.advice) out["advice"].push_back({{"says", a.says}, {"verdict", a.verdict}, {"clean", a.clean}});
  out["matrices"] = ordered_json::array();
  for (const AuditMatrix& matrix : r.matrices) out["matrices"].push_back(matrix_json(matrix));
  out["not_judged"] = r.not_judged;
  out["scenario"] = or_null(r.scenario_file);
  out["replay_command"] = r.replay_command;
  out["judged_runs"] = r.judged_runs;
  out["runs_alike"] = r.runs_alike;
  out["seed"] = r.seed;
  out["seconds"] = r.seconds;
  return json_line(out);
}

}  // namespace gradledger::report
