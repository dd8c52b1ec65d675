// The reports of the shards of one run, read from files that anybody may have written: sizes, JSON and records are checked before anything is believed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "report/shards.h"
#include "report/summary.h"
#include "sim/base/result.h"

namespace gradledger::tool {

// Of a record's field: empty where it is null. Throws what the library throws where it is something else.
std::string text_or_nothing(const nlohmann::json& value);

// A line of a report.
struct RecordLine {
  std::size_t number = 0;  // from 1
  std::string text;        // without its end
  nlohmann::json value;
};

struct ShardReport {
  std::string file;
  report::ShardRow head;
  std::string tool;                       // as JSON
  std::string command;                    // that shows this shard again
  std::vector<RecordLine> records;        // between head and summary
  std::optional<nlohmann::json> summary;  // none: the process died, or is not done
};

struct ShardReports {
  report::ShardRow run;                            // of which all are shards; its own number means nothing
  std::map<std::uint32_t, ShardReport> shards;     // by number
  std::vector<report::MergeReport::Missing> gone;  // in their order: there is no report, or one without a summary, whose records are among `shards` all the same

  report::MergeReport overview() const;
  // The highest exit code of all, and broken_run where one is gone.
  int code() const;
  std::string ended_by() const;
  // Each error once, however many shards told it.
  std::vector<report::ErrorRow> errors() const;
  // Of the summaries; 0 where one has none of the name.
  std::uint64_t sum(const std::string& count) const;
};

// expected: how many shards there are, where the caller knows it. Errors: no file is a report of a shard; one is something else; they are not of one run; a shard is there
// twice; together they are larger than `bytes_max`.
Result<ShardReports> read_shard_reports(const std::vector<std::string>& files, std::optional<std::uint32_t> expected, std::uint64_t bytes_max);

}  // namespace gradledger::tool
