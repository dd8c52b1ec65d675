#include "report/json.h"

#include <fmt/format.h>

#include "report/json_parts.h"

namespace gradledger::report {
namespace {

ordered_json elements_json(const Report& report, const std::vector<ref::ElementRange>& elements) {
  ordered_json out = ordered_json::array();
  for (const ref::ElementRange& e : elements) out.push_back({{"parameter", report.parameters.at(e.parameter)}, {"begin", e.begin}, {"end", e.end}});
  return out;
}

ordered_json operation_json(const RacingOperation& o) { return {{"operation", o.operation}, {"stream", o.stream}, {"event", o.event}, {"number", o.number}}; }

ordered_json race_json(const Finding& f) {
  const RaceRecord& r = f.race->record;
  ordered_json out{{"begin", r.begin}, {"end", r.end}, {"first", operation_json(r.first)}, {"second", operation_json(r.second)}};
  out["missing_wait"] = {{"stream", r.second.stream}, {"for", r.first.stream}};
  out["other_pairs"] = f.race->others;
  out["schedules_tried"] = f.race->schedules_tried;
  if (f.race->schedule_seed) {
    out["schedule_seed"] = *f.race->schedule_seed;
    out["command"] = f.race_command;
  }
  return out;
}

ordered_json known_json(const ref::KnownDefect& d) {
  const auto or_null = [](const std::string& text) { return text.empty() ? ordered_json(nullptr) : ordered_json(text); };
  return {{"entry", d.entry},          {"name", d.name},           {"title", d.title}, {"origin", or_null(d.origin)}, {"since", or_null(d.since)},
          {"fixed", or_null(d.fixed)}, {"avoid", or_null(d.avoid)}};
}

ordered_json contributions_json(const std::vector<ref::Miscounted>& contributions) {
  ordered_json out = ordered_json::array();
  for (const ref::Miscounted& m : contributions)
    out.push_back({{"step", m.contribution.step},
                   {"rank", m.contribution.rank},
                   {"micro_batch", m.contribution.micro_batch},
                   {"expected", number_json(m.expected)},
                   {"observed", number_json(m.observed)}});
  return out;
}

ordered_json worst_json(const Report& report, const ref::WorstElement& w) {
  ordered_json out{{"parameter", report.parameters.at(w.parameter)},
                   {"element", w.element},
                   {"observed", number_json(w.observed)},
                   {"observed_hex", fmt::format("{:a}", w.observed)},
                   {"observed_bits", fmt::format("0x{:0{}x}", w.bits, 2 * size_of(w.dtype))},
                   {"expected", number_json(w.expected)},
                   {"expected_hex", fmt::format("{:a}", w.expected)},
                   {"error", number_json(w.error())},
                   {"bound", number_json(w.bound)}};
  if (w.bound > 0) out["error_over_bound"] = number_json(w.error() / w.bound);
  return out;
}

ordered_json finding_json(const Report& report, const Finding& f) {
  ordered_json out;
  out["class"] = name_of(f.finding);
  out["step"] = f.step;
  out["event"] = f.event;
  out["file"] = report.file;
  out["pointer"] = f.pointer;
  out.update(position_json(f.at));
  out["rank"] = f.rank;
  out["buffer"] = f.buffer;
  out["role"] = name_of(f.role);
  out["elements"] = elements_json(report, f.elements);
  out["contributions"] = contributions_json(f.contributions);
  if (!f.alike.empty()) {
    out["alike"] = ordered_json::array();
    for (const Contribution& c : f.alike) out["alike"].push_back({{"step", c.step}, {"rank", c.rank}, {"micro_batch", c.micro_batch}});
  }
  if (f.worst) out["worst"] = worst_json(report, *f.worst);
  if (f.quantity)
    out["quantity"] = {
        {"name", f.quantity->name}, {"observed", number_json(f.quantity->observed)}, {"due", number_json(f.quantity->due)}, {"bound", number_json(f.quantity->bound)}};
  if (f.race) out["race"] = race_json(f);
  if (f.blame) out["blame"] = blame_json(*f.blame);
  out["known"] = f.known ? known_json(*f.known) : ordered_json(nullptr);
  if (f.too_large) out["known_too_large"] = true;
  out["first_event"] = f.first_event;
  out["lost_weight"] = f.lost_weight;
  out["excess_weight"] = f.excess_weight;
  if (!f.as_if.empty()) out["as_if"] = f.as_if;
  out["also_in"] = f.also_in;
  out["sentence"] = f.sentence;
  return out;
}

ordered_json ledger_json(const Report& report, const ref::AppliedRow& row) {
  ordered_json out{{"step", row.step}, {"event", row.event}, {"rank", row.rank}, {"buffer", row.buffer}, {"elements", elements_json(report, row.row.elements)}};
  out["weights"] = ordered_json::array();
  for (std::size_t k = 0; k < row.columns.size(); ++k) {
    const Contribution& c = row.columns[k];
    if (row.row.observed[k] == 0 && row.row.expected[k] == 0) continue;
    out["weights"].push_back(
        {{"step", c.step}, {"rank", c.rank}, {"micro_batch", c.micro_batch}, {"observed", number_json(row.row.observed[k])}, {"expected", number_json(row.row.expected[k])}});
  }
  return out;
}

ordered_json statistics_json(const ref::JudgeStatistics& s) {
  return {{"snapshots", s.snapshots}, {"elements", s.elements}, {"inconclusive", s.inconclusive}, {"largest_error_over_bound", s.tightest}};
}

ordered_json coverage_json(const ref::Coverage& c) {
  ordered_json out{{"snapshots", c.snapshots()}, {"judged", c.judged}};
  for (std::size_t i = 0; i < ref::reasons_not_due; ++i) out["not_judged"][std::string(name_of(static_cast<ref::NotDue>(i)))] = c.not_judged[i];
  out["windows_closed"] = c.windows_closed;
  out["windows_judged"] = c.windows_judged;
  out["missing_facts"] = ordered_json::array();
  for (const ref::MissingFact& m : c.missing) out["missing_facts"].push_back({{"event", m.event}, {"rank", m.rank}, {"fact", name_of(m.fact)}});
  out["applied_gradients_not_shown"] = c.not_shown;  // step events
  out["nothing_judged"] = c.nothing.empty() ? ordered_json(nullptr) : ordered_json(c.nothing);
  return out;
}

}  // namespace

std::string Json::head(const std::string&) const { return ""; }

std::string Json::between() const { return ""; }

std::string Json::text(const Report& report) const {
  ordered_json out = json_head(report.tool);
  out["command"] = report.command;
  out["scenario"] = report.scenario;
  out["file"] = report.file;
  out["engine"] = report.engine;
  out["as_of"] = report.as_of.base;
  out["behaviours"] = ordered_json::object();  // those set by hand
  for (const auto& [name, value] : report.as_of.switches) out["behaviours"][name] = value;
  if (!report.overrides.empty()) out["overrides"] = overrides_json(report.overrides);
  out["world_size"] = report.world_size;
  out["producer"] = report.producer;
  out["seed"] = report.seed;
  out["seconds"] = report.seconds;
  out["verdict"] = name_of(report.outcome());
  out["open"] = report.open;
  out["coverage"] = coverage_json(report.coverage);
  out["findings"] = ordered_json::array();
  for (const Finding& f : report.findings) out["findings"].push_back(finding_json(report, f));
  out["ledger"] = ordered_json::array();
  for (const ref::AppliedRow& row : report.ledger) out["ledger"].push_back(ledger_json(report, row));
  if (!report.driver_notes.empty()) out["replaced"] = report.driver_notes;
  if (!report.trace_lacks.empty()) out["not_in_the_trace"] = report.trace_lacks;
  for (const auto& [purpose, by_rank] : report.collectives) out["collectives_by_rank_and_step"][purpose] = by_rank;
  out["passes"] = {{"fingerprint", report.fingerprint_passes}, {"decode", report.decode_passes}, {"value", report.value_passes}};
  out["exact"] = report.exact;
  out["contributions"] = report.contributions;
  out["contributions_not_decoded"] = report.contributions_not_decoded;
  out["inconclusive_rows"] = report.inconclusive_rows;
  if (report.one_pass) out["run_that_is_over"] = {{"not_judged", report.left_out}, {"unexplained", report.unexplained}, {"recordings_do_not_tell", recordings_do_not_tell}};
  const Statistics& s = report.statistics;
  out["statistics"] = {{"ledger", statistics_json(s.ledger)}, {"values", statistics_json(s.values)}, {"parameters", statistics_json(s.parameters)}};
  out["completed"] = report.run.completed;
  out["trace_hash"] = fmt::format("{:016x}", report.run.trace_hash);
  out["value_hash"] = fmt::format("{:016x}", report.run.value_hash);
  out["bytes_peak"] = report.run.bytes_peak;
  return json_line(out);
}

std::unique_ptr<Renderer> make_json(const Style&) { return std::make_unique<Json>(); }

}  // namespace gradledger::report
