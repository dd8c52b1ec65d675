// gradledger merge: its options and the parts that the verb is made of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "search/campaign/campaign.h"
#include "tools/gradledger/options.h"
#include "tools/gradledger/shard_reports.h"

namespace gradledger::tool {

class Output;
struct FuzzOptions;

struct MergeVerb {
  std::vector<std::string> reports;
  std::optional<std::uint32_t> expected;  // shards
  std::string findings;                   // folder; empty: findings stand in the report alone
  std::uint32_t jobs = 1;
};

CLI::App* add_merge(CLI::App& app, Options& options, MergeVerb& verb);

// One report of one run, and its exit code. Errors in what the reports hold are complained about.
int merge(const MergeVerb& verb, const Options& options, const Output& out);

// A campaign whose cases were run by other processes.
struct ShardsOfCampaign {
  report::MergeReport overview;
  std::vector<search::JudgedCase> cases;  // by number
  search::Counts together;
  std::optional<std::uint32_t> canary;
  std::uint64_t next = 0;
  std::string ended_by;
  std::vector<report::ErrorRow> errors;
  double seconds = 0;
  int code = 0;
};

// The three kinds of reports. Errors: records that no process of the run can have written; of an exploration, two that do not agree.
std::optional<InputError> merge_gate(const ShardReports& reports, const Output& out);
std::optional<InputError> merge_exploration(const ShardReports& reports, const Output& out);
Result<ShardsOfCampaign> shards_of_campaign(const ShardReports& reports, const Options& options);

// The report that one process would have printed.
int join_campaign(const Options& options, const FuzzOptions& fuzz, search::CampaignOptions campaign, const ShardsOfCampaign& shards, const Output& out);

}  // namespace gradledger::tool
