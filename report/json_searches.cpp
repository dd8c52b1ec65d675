// Searches as JSON: a line a record.
#include <fmt/format.h>

#include "report/json.h"
#include "report/json_parts.h"
#include "sim/scenario/parse.h"

namespace gradledger::report {
namespace {

ordered_json or_null(const std::optional<std::uint32_t>& number) { return number ? ordered_json(*number) : ordered_json(); }

std::string found_line(const FoundRow& row) {
  if (row.not_taken()) return json_line({{"record", "finding"}, {"status", row.status}, {"sentence", row.sentence}, {"file", row.file}});
  if (row.gone()) return json_line({{"record", "finding"}, {"status", row.status}, {"class", row.finding}, {"file", row.file}});
  return json_line({{"record", "finding"},
                    {"status", row.status},
                    {"class", row.finding},
                    {"engine", row.engine},
                    {"shape", row.shape},
                    {"events", row.events},
                    {"minimal", row.minimal},
                    {"case", row.number},
                    {"blame", blame_json(row.blame)},
                    {"sentence", row.sentence},
                    {"file", row.file}});
}

// Of those to which others came: how many findings they stand for.
ordered_json alike_of(const std::vector<FoundRow>& found) {
  ordered_json out = ordered_json::array();
  for (const FoundRow& row : found)
    if (row.alike > 1) out.push_back({{"class", row.finding}, {"engine", row.engine}, {"shape", row.shape}, {"alike", row.alike}});
  return out;
}

}  // namespace

std::string Json::text(const FoundRow& row) const { return found_line(row); }

std::string Json::text(const FuzzReport& r) const {
  std::string out;
  for (const BrokenCase& broken : r.broken)
    out += json_line({{"record", "internal error"}, {"case", broken.number}, {"what", broken.what}, {"scenario", to_json(broken.scenario)}});
  ordered_json summary = json_head(r.tool, "summary");
  summary.update({{"command", r.command},
                  {"shard", r.shard},
                  {"cases", r.cases},
                  {"events", r.events},
                  {"rank_events", r.rank_events},
                  {"operations", r.operations},
                  {"compared", r.compared},
                  {"suspicious", r.suspicious},
                  {"judged", r.judged},
                  {"reruns", r.reruns},
                  {"not_run", r.not_run},
                  {"canary_cases", or_null(r.canary)},
                  {"nondeterminism", r.nondeterminism.value_or("")},
                  {"alike", alike_of(r.found)},
                  {"ended_by", r.ended_by},
                  {"next", r.next},
                  {"seconds", r.seconds}});
  return out + json_line(summary);
}

std::string Json::text(const DifferenceRow& row) const {
  return json_line({{"record", "difference"}, {"one", row.one}, {"other", row.other}, {"case", row.number}, {"shape", row.shape}, {"text", row.text}, {"files", row.files}});
}

std::string Json::text(const DifferSummary& s) const {
  ordered_json out = json_head(s.tool, "summary");
  out.update({{"command", s.command}, {"cases", s.cases}, {"compared", s.compared}, {"differing", s.differing}, {"canary_cases", or_null(s.canary)}, {"ended_by", s.ended_by}});
  return json_line(out);
}

std::string Json::text(const HuntHead&) const { return ""; }

std::string Json::text(const HuntRow& row) const {
  return json_line({{"record", "row"},
                    {"id", row.entry},
                    {"as_of", row.as_of},
                    {"found", row.found},
                    {"cases", row.cases},
                    {"seconds", row.seconds},
                    {"class", row.finding},
                    {"events", row.events},
                    {"events_known", row.events_known},
                    {"shape", row.shape}});
}

std::string Json::text(const HuntSummary& s) const {
  ordered_json out = json_head(s.tool, "summary");
  out.update({{"rows", s.rows}, {"found", s.found}, {"of_loops", s.of_loops}, {"median_events_above_known", s.events_above_known}});
  return json_line(out);
}

std::string Json::text(const ExploreReport& r) const {
  std::string out;
  for (const FoundRow& f : r.found)
    out += json_line({{"record", "finding"},
                      {"engine", r.engine},
                      {"class", f.finding},
                      {"shape", f.shape},
                      {"events", f.events},
                      {"blame", blame_json(f.blame)},
                      {"sentence", f.sentence},
                      {"scenario", to_json(f.scenario)}});
  ordered_json engine = json_head(r.tool, "engine");
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
  for (const RaceRecord& race : r.races)
    races.push_back({{"rank", race.rank}, {"buffer", race.buffer}, {"begin", race.begin}, {"end", race.end}, {"first", race.first.operation}, {"second", race.second.operation}});
  for (const OrderOutcome& w : r.witnesses) witnesses.push_back({{"values", fmt::format("{:016x}", w.values)}, {"memory", fmt::format("{:016x}", w.memory)}, {"order", w.order}});
  ordered_json out = json_head(r.tool, "streams");
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
              {"outcomes", r.outcomes},
              {"outcomes_in_values", r.outcomes_in_values},
              {"races", races},
              {"witnesses", witnesses},
              {"agreement", r.agreement},
              {"seconds", r.seconds}});
  return json_line(out);
}

}  // namespace gradledger::report
