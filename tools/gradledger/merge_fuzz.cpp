// Campaigns: the cases that shards judged, for one campaign to decide on again.
#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "search/campaign/canary.h"
#include "sim/load.h"
#include "tools/gradledger/merge.h"

namespace gradledger::tool {
namespace {

using nlohmann::json;

InputError wrong(const ShardReport& shard, const RecordLine& line, const std::string& what) { return {fmt::format("{}:{}", shard.file, line.number), what}; }

// As large as a judgement may be, whoever wrote it.
Result<Scenario> scenario_from(const json& in, const ShardReport& shard, const RecordLine& line, const Options& options) {
  auto out = read_scenario(in.dump(), {});
  if (!out) return wrong(shard, line, "holds no scenario: " + out.error().text());
  if (verbs::bytes_needed(*out) > options.memory_limit) return wrong(shard, line, "holds a scenario that does not fit --memory-limit; expected one that a campaign draws");
  return out;
}

Result<search::JudgedCase> case_from(const ShardReport& shard, const RecordLine& line, const Options& options) {
  constexpr std::uint64_t number_max = 1ull << 41;
  const json& in = line.value;
  search::JudgedCase out;
  in.at("case").get_to(out.number);
  if (out.number > number_max || out.number % shard.head.shards != shard.head.shard) return wrong(shard, line, fmt::format("has case {}, which is none of this shard", out.number));
  if (const json& alike = in.at("alike"); !alike.is_null()) {
    const std::string digits = alike;
    std::uint64_t hash = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), hash, 16).ptr != digits.data() + digits.size()) return wrong(shard, line, "has no hash under /alike");
    out.alike = hash;
  }
  out.broken = text_or_nothing(in.at("broken"));
  out.nondeterministic = text_or_nothing(in.at("nondeterminism"));
  for (const json& one : in.at("shown")) {
    search::JudgedCase::Shown& shown = out.shown.emplace_back();
    one.at("class").get_to(shown.finding);
    if (!ref::finding_class_named(shown.finding)) return wrong(shard, line, "\"" + shown.finding + "\" is no class of findings");
    one.at("minimal").get_to(shown.minimal);
    shown.broken = text_or_nothing(one.at("broken"));
    if (one.at("scenario").is_null()) continue;
    auto scenario = scenario_from(one.at("scenario"), shard, line, options);
    if (!scenario) return scenario.error();
    shown.scenario = std::move(scenario).value();
  }
  return out;
}

// What one shard told, in the order in which it did.
struct Told {
  std::vector<search::JudgedCase> cases;
  std::vector<report::MergeReport::Further> found;
  const json* campaign = nullptr;
};

Result<Told> told_by(const ShardReport& shard, const Options& options) {
  Told out;
  for (const RecordLine& line : shard.records) {
    const std::string record = line.value["record"];
    if (record == "judged") {
      auto one = case_from(shard, line, options);
      if (!one) return one.error();
      if (!out.cases.empty() && out.cases.back().number >= one->number) return wrong(shard, line, fmt::format("has case {} behind case {}", one->number, out.cases.back().number));
      out.cases.push_back(std::move(one).value());
    } else if (record == "finding") {
      if (line.value.at("case").is_null() || line.value.at("status") == "still there")
        return wrong(shard, line, "is of a file that was there before: " + text_or_nothing(line.value.at("file")) + "; expected an empty folder of findings for each shard");
      out.found.push_back({line.value.at("case").get<std::uint64_t>(), line.value.at("class").get<std::string>()});
    } else if (record == "campaign") {
      out.campaign = &line.value;
    }
  }
  return out;
}

bool is_told(const std::vector<search::JudgedCase>& cases, std::uint64_t number) {
  return std::any_of(cases.begin(), cases.end(), [&](const search::JudgedCase& c) { return c.number == number; });
}

search::Counts together(const ShardReports& reports) {
  search::Counts out;
  out.cases = reports.sum("cases");
  out.events = reports.sum("events");
  out.rank_events = reports.sum("rank_events");
  out.operations = reports.sum("operations");
  out.compared = reports.sum("compared");
  out.suspicious = reports.sum("suspicious");
  out.judged = reports.sum("judged");
  out.reruns = reports.sum("reruns");
  out.not_run = reports.sum("not_run");
  return out;
}

}  // namespace

Result<ShardsOfCampaign> shards_of_campaign(const ShardReports& reports, const Options& options) {
  ShardsOfCampaign out{reports.overview(), {}, together(reports), std::nullopt, 0, reports.ended_by(), reports.errors(), 0, reports.code()};
  bool canary_told = false, canary_lost = false, next_told = false;
  for (const auto& [number, shard] : reports.shards) {
    auto told = told_by(shard, options);
    if (!told) return told.error();
    // A process that died between a finding and the case that it is of: what it found is not lost.
    for (const report::MergeReport::Further& found : told->found)
      if (!is_told(told->cases, found.number)) out.overview.further.push_back(found);
    out.cases.insert(out.cases.end(), told->cases.begin(), told->cases.end());
    if (shard.summary) out.seconds = std::max(out.seconds, shard.summary->at("seconds").get<double>());
    if (!told->campaign) continue;
    const json &canary = told->campaign->at("canary_cases"), &next = told->campaign->at("next");
    canary_told = true;
    if (canary.is_null()) canary_lost = true;
    else out.canary = canary.get<std::uint32_t>();
    out.next = next_told ? std::min(out.next, next.get<std::uint64_t>()) : next.get<std::uint64_t>();
    next_told = true;
  }
  if (canary_lost) out.canary.reset();
  else if (!canary_told) out.canary = search::cases_until_canary(reports.run.seed);
  std::sort(out.cases.begin(), out.cases.end(), [](const search::JudgedCase& a, const search::JudgedCase& b) { return a.number < b.number; });
  return out;
}

}  // namespace gradledger::tool
