// Searches as JSON: a line a record.
#include "report/json.h"
#include "report/json_parts.h"
#include "sim/scenario/parse.h"

namespace gradledger::report {
namespace {

ordered_json case_json(const BrokenCase& broken, ordered_json out) {
  out["case"] = broken.number;
  out["what"] = broken.what;
  out["scenario"] = to_json(broken.scenario);
  return out;
}

FoundIn found_in(const FoundRow& row) {
  FoundIn out{row.scenario.name, row.file, row.engine, {}, row.seed};
  for (const Parameter& p : row.scenario.parameters) out.parameters.push_back(p.name);
  return out;
}

// Of those to which others came: how many findings they stand for.
ordered_json alike_of(const std::vector<FoundRow>& found) {
  ordered_json out = ordered_json::array();
  for (const FoundRow& row : found)
    if (row.alike > 1) out.push_back({{"class", row.finding}, {"engine", row.engine}, {"shape", row.shape}, {"alike", row.alike}});
  return out;
}

}  // namespace

std::string Json::text(const FoundRow& row) const {
  const ordered_json none(nullptr);
  const bool there = row.detail.has_value();
  ordered_json out = record("finding");
  out["status"] = or_null(row.status);
  out["class"] = or_null(row.finding);
  out["engine"] = or_null(row.engine);
  out["shape"] = or_null(row.shape);
  out["events"] = there ? ordered_json(row.events) : none;
  out["minimal"] = row.minimal;
  out["case"] = there && !row.status.empty() ? ordered_json(row.number) : none;
  out["file"] = or_null(row.file);
  out["why"] = row.not_taken() ? ordered_json(row.sentence) : none;
  out["finding"] = there ? finding_json(*row.detail, found_in(row)) : none;
  out["scenario"] = there && row.file.empty() ? to_json(row.scenario) : none;
  return json_line(out);
}

std::string Json::text(const FuzzReport& r) const {
  std::string out;
  for (const BrokenCase& broken : r.broken) out += json_line(case_json(broken, record("internal-error", broken.command)));
  ordered_json campaign = record("campaign", r.command);
  campaign["shard"] = r.shard;
  campaign["canary_cases"] = number_or_null(r.canary);
  campaign["nondeterminism"] = or_null(r.nondeterminism.value_or(""));
  campaign["alike"] = alike_of(r.found);
  campaign["next"] = r.next;
  return out + json_line(campaign);
}

std::string Json::text(const DifferenceRow& row) const {
  ordered_json out = record("difference");
  out.update({{"one", row.one}, {"other", row.other}, {"case", row.number}, {"shape", row.shape}, {"text", row.text}, {"files", row.files}});
  return json_line(out);
}

std::string Json::text(const DifferSummary& s) const {
  const ordered_json none(nullptr);
  ordered_json out = record("campaign", s.command);
  out.update({{"shard", none}, {"canary_cases", number_or_null(s.canary)}, {"nondeterminism", none}, {"alike", ordered_json::array()}, {"next", none}});
  return json_line(out);
}

std::string Json::text(const HuntRow& row) const {
  ordered_json out = record("hunt");
  out.update({{"entry", row.entry},
              {"as_of", row.as_of},
              {"found", row.found},
              {"cases", row.cases},
              {"seconds", row.seconds},
              {"class", or_null(row.finding)},
              {"events", row.events},
              {"events_known", row.events_known},
              {"shape", or_null(row.shape)}});
  return json_line(out);
}

std::string Json::text(const ExploreReport& r) const {
  std::string out;
  for (const FoundRow& f : r.found) out += text(f);
  ordered_json engine = record("engine");
  engine.update({{"engine", r.engine},
                 {"as_of", r.as_of},
                 {"complete", r.complete},
                 {"length", r.length},
                 {"depth", r.depth},
                 {"states", r.states},
                 {"transitions", r.transitions},
                 {"merged", r.merged},
                 {"mirrored", r.mirrored},
                 {"refused", r.refused},
                 {"undocumented", r.undocumented},
                 {"not_run", r.not_run},
                 {"wrong", r.wrong},
                 {"compared", r.compared},
                 {"symmetric", r.symmetric},
                 {"seconds", r.seconds}});
  return out + json_line(engine);
}

std::string Json::text(const OrdersReport& r) const {
  ordered_json races = ordered_json::array(), witnesses = ordered_json::array();
  for (const RaceRecord& race : r.races) {
    ordered_json one{{"rank", race.rank}, {"buffer", race.buffer}};
    one.update(pair_json(race));
    races.push_back(std::move(one));
  }
  for (const OrderOutcome& w : r.witnesses) witnesses.push_back({{"values", hash_json(w.values)}, {"memory", hash_json(w.memory)}, {"order", w.order}});
  ordered_json out = record("streams");
  out.update({{"scenario", r.scenario},
              {"complete", r.complete},
              {"every_choice", r.every_choice},
              {"states", r.states},
              {"transitions", r.transitions},
              {"rank_states", r.rank_states},
              {"depth", r.depth},
              {"left_out", r.left_out},
              {"deadlock", r.deadlock},
              {"mismatch", r.mismatch},
              {"receives_pass", r.receives_pass},
              {"outcomes", r.outcomes},
              {"outcomes_in_values", r.outcomes_in_values},
              {"races", races},
              {"witnesses", witnesses},
              {"agreement", r.agreement},
              {"seconds", r.seconds}});
  return json_line(out);
}

}  // namespace gradledger::report
