#include "tools/gradledger/merge.h"

#include <algorithm>

#include <fmt/format.h>

#include "report/version/version.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/fuzz.h"
#include "tools/gradledger/numbers.h"
#include "tools/gradledger/output.h"
#include "tools/gradledger/run_options.h"
#include "tools/gradledger/verbs.h"

namespace gradledger::tool {
namespace {

constexpr std::uint64_t memory_of_a_byte = 16;  // of JSON: what is read from it, from above

int refuse(const InputError& error) {
  complain(error);
  return error.unavailable ? unavailable : bad_input;
}

void tell_errors(const std::vector<report::ErrorRow>& errors, const Output& out) {
  for (const report::ErrorRow& error : errors) {
    say(fmt::format("{}{}{}", error.file, error.file.empty() ? error.option : "", (error.file.empty() && error.option.empty() ? "" : ": ") + error.message));
    out.print(error);
  }
}

int joined_gate(const ShardReports& reports, const Output& out) {
  if (const auto error = merge_gate(reports, out)) return refuse(*error);
  tell_errors(reports.errors(), out);
  out.print(reports.overview());
  return reports.code();
}

int joined_exploration(const ShardReports& reports, const Output& out) {
  if (const auto error = merge_exploration(reports, out)) return refuse(*error);
  tell_errors(reports.errors(), out);
  out.print(reports.overview());
  return reports.code();
}

int joined_campaign(const ShardReports& reports, const MergeVerb& verb, Options options, const Output& out) {
  if (!reports.run.draws)
    return refuse(
        {"REPORT", "is of a campaign that is not joined: with --differ or --resume, or of a real framework or a GPU; expected one of the simulator from its first case on"});
  const report::DrawnFrom& from = *reports.run.draws;
  FuzzOptions fuzz;
  fuzz.cases = from.cases;
  fuzz.only = from.only;
  fuzz.engines = from.engines;
  fuzz.as_of = from.as_of;
  fuzz.switches = from.switches;
  fuzz.any_script = from.any_script;
  fuzz.jobs = verb.jobs;
  fuzz.findings = verb.findings;
  options.seed = reports.run.seed;
  auto shards = shards_of_campaign(reports, options);
  if (!shards) return refuse(shards.error());
  fuzz.time_s = std::nullopt;
  auto campaign = campaign_options(options, fuzz);
  if (!campaign) return refuse(campaign.error());
  fuzz.time_s = from.time_s;
  tell_errors(shards->errors, out);
  return join_campaign(options, fuzz, std::move(campaign).value(), *shards, out);
}

}  // namespace

CLI::App* add_merge(CLI::App& app, Options& options, MergeVerb& verb) {
  CLI::App* merge = app.add_subcommand("merge", "Join the reports of the processes of one gate, fuzz or explore into that of the whole run");
  merge->add_option("REPORT", verb.reports, "Reports that --records wrote, one a shard")->required();
  merge->add_option("--expect", verb.expected, "Shards that the run must have had")->check(whole_number)->check(CLI::Range(1u, shards_max));
  merge->add_option("--findings", verb.findings, "fuzz: folder that the findings of all shards are written to, and whose files are replayed first")->check(some_text);
  merge->add_option("--jobs", verb.jobs, "fuzz: threads; what is joined does not depend on them")->check(whole_number)->check(CLI::Range(1, 1024))->capture_default_str();
  add_format(merge, options, "The records of the whole run instead of text");
  add_memory_limit(merge, options);
  return merge;
}

int merge(const MergeVerb& verb, const Options& options, const Output& out) {
  auto reports = read_shard_reports(verb.reports, verb.expected, options.memory_limit / memory_of_a_byte);
  if (!reports) return refuse(reports.error());
  const ShardReport& first = reports->shards.begin()->second;
  if (first.tool != nlohmann::json(report::tool_json()).dump())
    return refuse({first.file, fmt::format("was written by {}; expected the build that merges, {}", first.tool, report::tool_json().dump())});
  const bool campaign = reports->run.verb == "fuzz";
  const bool exploration = reports->run.verb == "explore";
  if (!campaign && !exploration && reports->run.verb != "gate") return refuse({first.file, "is of " + reports->run.verb + "; expected gate, fuzz or explore"});
  if (!campaign && !verb.findings.empty())
    return refuse({"--findings", fmt::format("is of campaigns, and {} is of {}; expected none", first.file, exploration ? "an exploration" : "a gate")});
  for (const auto& gone : reports->gone) say(fmt::format("shard {} is missing: {}{}", gone.shard, gone.why, gone.file.empty() ? "" : ": " + gone.file));
  try {
    if (campaign) {
      out.is_of("fuzz", reports->run.seed, reports->run.run + (verb.findings.empty() ? "" : " --findings " + shell_word(verb.findings)));
      return joined_campaign(*reports, verb, options, out);
    }
    out.is_of(reports->run.verb, reports->run.seed, reports->run.run);
    return exploration ? joined_exploration(*reports, out) : joined_gate(*reports, out);
  } catch (const nlohmann::json::exception& error) {
    return refuse({"REPORT", std::string("a record lacks what it has in a report of this version (") + error.what() + "); expected reports as they were written"});
  }
}

}  // namespace gradledger::tool
