#include "report/json.h"

#include "report/json_parts.h"

namespace gradledger::report {
namespace {

ordered_json ledger_json(const Report& report, const ref::AppliedRow& row) {
  ordered_json out{{"step", row.step}, {"event", row.event}, {"rank", row.rank}, {"buffer", row.buffer}, {"elements", elements_json(report.parameters, row.row.elements)}};
  ordered_json listed = ordered_json::array();
  std::vector<Weighed> all;
  all.reserve(row.columns.size());
  for (std::size_t k = 0; k < row.columns.size(); ++k)
    if (!row.row.dark(k)) all.push_back({row.columns[k], row.row.expected[k], row.row.observed[k], row.row.misplaced_at(k), row.row.open_at(k)});
  for (std::size_t i = 0; i < all.size() && i < listed_contributions_max; ++i) {
    const Contribution& c = all[i].contribution;
    listed.push_back({{"step", c.step},
                      {"rank", c.rank},
                      {"micro_batch", c.micro_batch},
                      {"observed", number_json(all[i].observed)},
                      {"expected", number_json(all[i].expected)},
                      {"misplaced", all[i].misplaced},
                      {"open", all[i].open}});
  }
  out["weights_not_listed"] = all.size() - listed.size();
  out["weights"] = std::move(listed);
  out["weight_blocks"] = blocks_json(all, [](ordered_json& one, const Weighed& w) {
    one["misplaced"] = w.misplaced;
    one["open"] = w.open;
  });
  return out;
}

ordered_json statistics_json(const ref::JudgeStatistics& s) {
  return {{"snapshots", s.snapshots}, {"elements", s.elements}, {"inconclusive", s.inconclusive}, {"largest_error_over_bound", number_json(s.tightest)}};
}

ordered_json coverage_json(const ref::Coverage& c) {
  ordered_json out{{"snapshots", c.snapshots()}, {"judged", c.judged}};
  for (std::size_t i = 0; i < ref::reasons_not_due; ++i) out["not_judged"][std::string(name_of(static_cast<ref::NotDue>(i)))] = c.not_judged[i];
  out["windows_closed"] = c.windows_closed;
  out["windows_judged"] = c.windows_judged;
  out["missing_facts"] = ordered_json::array();
  for (const ref::MissingFact& m : c.missing) out["missing_facts"].push_back({{"event", m.event}, {"rank", m.rank}, {"fact", name_of(m.fact)}});
  out["applied_gradients_not_shown"] = c.not_shown;  // step events
  out["nothing_judged"] = or_null(c.nothing);
  return out;
}

}  // namespace

ordered_json Json::record(const char* name, const std::string& command) const {
  return {{"schema_version", json_schema_version}, {"record", name}, {"tool", tool_json(origin_.tool)}, {"command", command.empty() ? origin_.command : command}};
}

std::string Json::text(const Report& report) const {
  ordered_json out = record("replay", report.command);
  out["scenario"] = report.scenario;
  out["file"] = report.file;
  out["engine"] = report.engine;
  out["as_of"] = report.as_of.base;
  out["behaviours"] = ordered_json::object();  // those set by hand
  for (const auto& [name, value] : report.as_of.switches) out["behaviours"][name] = value;
  out["overrides"] = overrides_json(report.overrides);
  out["world_size"] = report.world_size;
  out["producer"] = report.producer;
  out["seed"] = report.seed;
  out["seconds"] = report.seconds;
  out["verdict"] = name_of(report.outcome());
  out["open"] = report.open;
  out["coverage"] = coverage_json(report.coverage);
  out["findings"] = findings_json(report.findings, report.found_in());
  out["ledger"] = ordered_json::array();
  for (const ref::AppliedRow& row : report.ledger) out["ledger"].push_back(ledger_json(report, row));
  out["replaced"] = report.driver_notes;
  out["not_in_the_trace"] = report.trace_lacks;
  out["collectives_by_rank_and_step"] = ordered_json::object();
  for (const auto& [purpose, by_rank] : report.collectives) out["collectives_by_rank_and_step"][purpose] = by_rank;
  out["passes"] = {{"symbolic", report.symbolic ? 1 : 0}, {"fingerprint", report.fingerprint_passes}, {"decode", report.decode_passes}, {"value", report.value_passes}};
  out["runs_leave_out"] = report.runs_leave_out;
  out["exact"] = report.exact;
  out["contributions"] = report.contributions;
  out["contributions_not_decoded"] = report.contributions_not_decoded;
  out["inconclusive_rows"] = report.inconclusive_rows.total();
  for (std::size_t i = 0; i < ref::reasons_not_told; ++i) out["inconclusive_because"][std::string(name_of(static_cast<ref::NotTold>(i)))] = report.inconclusive_rows.by_reason[i];
  out["snapshots_not_taken_apart"] = report.not_taken_apart;
  out["applied_gradients_not_listed"] = report.not_listed;
  out["run_that_is_over"] = nullptr;
  if (report.one_pass) out["run_that_is_over"] = {{"not_judged", report.left_out}, {"unexplained", report.unexplained}, {"recordings_do_not_tell", recordings_do_not_tell}};
  const Statistics& s = report.statistics;
  out["statistics"] = {{"ledger", statistics_json(s.ledger)}, {"values", statistics_json(s.values)}, {"parameters", statistics_json(s.parameters)}};
  out["completed"] = report.run.completed;
  out["trace_hash"] = hash_json(report.run.trace_hash);
  out["value_hash"] = hash_json(report.run.value_hash);
  out["bytes_peak"] = report.run.bytes_peak;
  return json_line(out);
}

std::string Json::text(const ErrorRow& row) const {
  ordered_json out = record("error");
  out["message"] = row.message;
  out["file"] = or_null(row.file);
  out.update(position_json(row.at));
  out["pointer"] = or_null(row.pointer);
  out["option"] = or_null(row.option);
  out["exit_code"] = row.exit_code;
  return json_line(out);
}

std::string Json::text(const Summary& s) const {
  ordered_json out = record("summary");
  out["verb"] = or_null(s.verb);
  out["exit_code"] = s.exit_code;
  out["errors"] = s.errors;
  out["ended_by"] = or_null(s.ended_by);
  out["seed"] = number_or_null(s.seed);
  out["seconds"] = s.seconds;
  out["counts"] = ordered_json::object();
  for (const auto& [name, number] : s.counts) out["counts"][name] = number;
  out["classes"] = s.classes;
  return json_line(out);
}

std::unique_ptr<Renderer> make_json(const Style&, const Origin& origin) { return std::make_unique<Json>(origin); }

}  // namespace gradledger::report
