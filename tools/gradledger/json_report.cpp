#include <cmath>

#include <fmt/format.h>

#include "ref/describe.h"
#include "tools/gradledger/report.h"
#include "report/version/version.h"

namespace gradledger::tool {
namespace {

using nlohmann::ordered_json;

ordered_json elements_json(const Scenario& scenario, const std::vector<ref::ElementRange>& elements) {
  ordered_json out = ordered_json::array();
  for (const ref::ElementRange& e : elements)
    out.push_back({{"parameter", scenario.parameters[e.parameter].name}, {"begin", e.begin}, {"end", e.end}});
  return out;
}

ordered_json number_json(double x) {
  if (std::isfinite(x)) return x;
  return fmt::format("{}", x);
}

ordered_json operation_json(const RacingOperation& o) { return {{"operation", o.operation}, {"stream", o.stream}, {"event", o.event}, {"number", o.number}}; }

ordered_json race_json(const Loaded& loaded, const Options& options, const ref::Finding& f) {
  const RaceRecord& r = f.race->record;
  ordered_json out{{"begin", r.begin}, {"end", r.end}, {"first", operation_json(r.first)}, {"second", operation_json(r.second)}};
  out["missing_wait"] = {{"stream", r.second.stream}, {"for", r.first.stream}};
  out["other_pairs"] = f.race->others;
  out["schedules_tried"] = f.race->schedules_tried;
  if (const std::string command = race_command(loaded.path, options, f); !command.empty()) {
    out["schedule_seed"] = *f.race->schedule_seed;
    out["command"] = command;
  }
  return out;
}

ordered_json known_json(const ref::KnownDefect& d) {
  const auto or_null = [](const std::string& text) { return text.empty() ? ordered_json(nullptr) : ordered_json(text); };
  return {{"entry", d.entry}, {"title", d.title}, {"origin", or_null(d.origin)}, {"since", or_null(d.since)}, {"fixed", or_null(d.fixed)}, {"avoid", or_null(d.avoid)}};
}

ordered_json finding_json(const Loaded& loaded, const Options& options, const ref::Finding& f) {
  ordered_json out;
  out["class"] = name_of(f.finding);
  out["step"] = f.step;
  out["event"] = f.event;
  out["pointer"] = loaded.timeline.pointers[loaded.timeline.events[f.event].item];
  out["rank"] = f.rank;
  out["buffer"] = f.buffer;
  out["role"] = name_of(f.role);
  out["elements"] = elements_json(loaded.scenario, f.elements);
  out["contributions"] = ordered_json::array();
  for (const ref::Miscounted& m : f.contributions)
    out["contributions"].push_back({{"step", m.contribution.step},
                                    {"rank", m.contribution.rank},
                                    {"micro_batch", m.contribution.micro_batch},
                                    {"expected", number_json(m.expected)},
                                    {"observed", number_json(m.observed)}});
  if (f.worst) {
    const ref::WorstElement& w = *f.worst;
    out["worst"] = {{"parameter", loaded.scenario.parameters[w.parameter].name},
                    {"element", w.element},
                    {"observed", number_json(w.observed)},
                    {"observed_hex", fmt::format("{:a}", w.observed)},
                    {"observed_bits", fmt::format("0x{:0{}x}", w.bits, 2 * size_of(w.dtype))},
                    {"expected", number_json(w.expected)},
                    {"expected_hex", fmt::format("{:a}", w.expected)},
                    {"error", number_json(w.error())},
                    {"bound", number_json(w.bound)}};
    if (w.bound > 0) out["worst"]["error_over_bound"] = number_json(w.error() / w.bound);
  }
  if (f.quantity)
    out["quantity"] = {{"name", f.quantity->name}, {"observed", number_json(f.quantity->observed)}, {"due", number_json(f.quantity->due)}, {"bound", number_json(f.quantity->bound)}};
  if (f.race) out["race"] = race_json(loaded, options, f);
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

ordered_json ledger_json(const Loaded& loaded, const ref::AppliedRow& row) {
  ordered_json out{{"step", row.step}, {"event", row.event}, {"rank", row.rank}, {"buffer", row.buffer}, {"elements", elements_json(loaded.scenario, row.row.elements)}};
  out["weights"] = ordered_json::array();
  for (std::size_t k = 0; k < row.columns.size(); ++k) {
    const Contribution& c = row.columns[k];
    if (row.row.observed[k] == 0 && row.row.expected[k] == 0) continue;
    out["weights"].push_back({{"step", c.step}, {"rank", c.rank}, {"micro_batch", c.micro_batch}, {"observed", number_json(row.row.observed[k])}, {"expected", number_json(row.row.expected[k])}});
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

ordered_json blame_json(const ref::Blame& blame) {
  return {{"whose", name_of(blame.whose)}, {"rule", blame.rule.empty() ? ordered_json(nullptr) : ordered_json(blame.rule)}, {"why", blame.why}};
}

std::string usage_mark(const ref::Blame& blame) { return blame.whose == ref::Whose::usage ? fmt::format(", usage ({})", blame.rule) : ""; }

ordered_json json_report(const Loaded& loaded, const Options& options, const ref::Verdict& verdict) {
  const Scenario& s = loaded.scenario;
  ordered_json out;
  out["schema_version"] = 1;
  out["tool"] = tool_json();
  out["command"] = repeat_command({loaded.path}, options);
  out["scenario"] = s.name;
  out["file"] = loaded.path.string();
  out["engine"] = loaded.engine;
  out["as_of"] = s.engine.as_of.base;
  out["behaviours"] = nlohmann::ordered_json::object();  // those set by hand
  for (const auto& [name, value] : s.engine.as_of.switches) out["behaviours"][name] = value;
  out["world_size"] = s.world_size;
  out["producer"] = options.producer;
  out["seed"] = options.seed;
  out["verdict"] = !verdict.findings.empty() ? "findings" : verdict.clean() ? "clean" : "nothing judged";
  out["open"] = loaded.timeline.open_window;
  out["coverage"] = coverage_json(verdict.coverage);
  out["findings"] = ordered_json::array();
  for (const ref::Finding& f : verdict.findings) out["findings"].push_back(finding_json(loaded, options, f));
  out["ledger"] = ordered_json::array();
  for (const ref::AppliedRow& row : verdict.applied) out["ledger"].push_back(ledger_json(loaded, row));
  for (const auto& [purpose, by_rank] : verdict.facts.collectives) out["collectives_by_rank_and_step"][purpose] = by_rank;
  out["passes"] = {{"fingerprint", verdict.fingerprint_passes}, {"decode", verdict.decode_passes}, {"value", verdict.value_passes}};
  out["exact"] = verdict.dyadic;
  out["contributions"] = verdict.contributions;
  out["contributions_not_decoded"] = verdict.undecoded;
  out["inconclusive_rows"] = verdict.inconclusive_rows;
  out["statistics"] = {{"ledger", statistics_json(verdict.ledger)}, {"values", statistics_json(verdict.values)}, {"parameters", statistics_json(verdict.parameters)}};
  out["completed"] = verdict.facts.summary.completed;
  out["trace_hash"] = fmt::format("{:016x}", verdict.facts.summary.trace_hash);
  out["value_hash"] = fmt::format("{:016x}", verdict.facts.summary.value_hash);
  out["bytes_peak"] = verdict.facts.summary.bytes_peak;
  return out;
}

}  // namespace gradledger::tool
