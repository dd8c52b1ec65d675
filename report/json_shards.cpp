// Shards and their joined reports as JSON.
#include "report/json.h"
#include "report/json_parts.h"
#include "sim/scenario/parse.h"

namespace gradledger::report {
namespace {

ordered_json draws_json(const DrawnFrom& from) {
  return {{"cases", number_or_null(from.cases)}, {"time", number_or_null(from.time_s)}, {"case", number_or_null(from.only)}, {"engines", from.engines}, {"as_of", from.as_of},
          {"switches", from.switches},           {"any_script", from.any_script}};
}

}  // namespace

std::string Json::text(const ShardRow& row) const {
  ordered_json out = record("shard");
  out["verb"] = row.verb;
  out["shard"] = row.shard;
  out["shards"] = row.shards;
  out["launcher"] = or_null(row.launcher);
  out["variables"] = ordered_json::object();
  for (const auto& [name, value] : row.variables) out["variables"][name] = value;
  out["run"] = row.run;
  out["seed"] = row.seed;
  out["draws"] = row.draws ? draws_json(*row.draws) : ordered_json(nullptr);
  return json_line(out);
}

std::string Json::text(const JudgedRow& row) const {
  ordered_json out = record("judged");
  out["case"] = row.number;
  out["alike"] = row.alike ? hash_json(*row.alike) : ordered_json(nullptr);
  out["broken"] = or_null(row.broken);
  out["nondeterminism"] = or_null(row.nondeterministic);
  out["shown"] = ordered_json::array();
  for (const JudgedRow::Shown& shown : row.shown)
    out["shown"].push_back(
        {{"class", shown.finding}, {"scenario", shown.scenario ? to_json(*shown.scenario) : ordered_json(nullptr)}, {"minimal", shown.minimal}, {"broken", or_null(shown.broken)}});
  return json_line(out);
}

std::string Json::text(const MergedGateRow& row) const { return row.record; }
std::string Json::text(const MergedExploration& exploration) const { return exploration.records; }

std::string Json::text(const MergeReport& merge) const {
  ordered_json out = record("merge");
  out["verb"] = merge.verb;
  out["shards"] = merge.shards;
  out["parts"] = ordered_json::array();
  for (const MergeReport::Part& part : merge.parts)
    out["parts"].push_back(
        {{"shard", part.shard}, {"file", part.file}, {"launcher", or_null(part.launcher)}, {"exit_code", number_or_null(part.exit_code)}, {"ended_by", or_null(part.ended_by)}});
  out["missing"] = ordered_json::array();
  for (const MergeReport::Missing& one : merge.missing) out["missing"].push_back({{"shard", one.shard}, {"file", or_null(one.file)}, {"why", one.why}});
  out["further"] = ordered_json::array();
  for (const MergeReport::Further& one : merge.further) out["further"].push_back({{"case", one.number}, {"class", one.finding}});
  out["made_small"] = merge.made_small;
  return json_line(out);
}

}  // namespace gradledger::report
