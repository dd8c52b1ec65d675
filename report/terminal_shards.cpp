// Shards and their joined reports for people.
#include <map>
#include <set>

#include <fmt/format.h>

#include "report/terminal.h"

namespace gradledger::report {

// What --shard says by hand stands in the command.
std::string Terminal::text(const ShardRow& row) const {
  if (row.launcher.empty()) return "";
  std::string variables;
  for (const auto& [name, value] : row.variables) variables += fmt::format(" {}={}", name, value);
  return fit(fmt::format("# shard {} of {}, as {} numbers it:{}\n", row.shard, row.shards, row.launcher, variables));
}

std::string Terminal::text(const MergedExploration& exploration) const { return text(exploration.report); }

std::string Terminal::text(const MergeReport& merge) const {
  std::string out = fmt::format("# merged: {} of {} shards of {}\n", merge.parts.size(), merge.shards, merge.verb);
  for (const MergeReport::Part& part : merge.parts)
    if (!part.ended_by.empty()) out += fmt::format("shard {} was ended by {}: {}\n", part.shard, part.ended_by, part.file);
  for (const MergeReport::Missing& one : merge.missing) out += fmt::format("shard {} is missing: {}{}\n", one.shard, one.why, one.file.empty() ? "" : ": " + one.file);
  std::map<std::string, std::set<std::uint64_t>> further;
  for (const MergeReport::Further& one : merge.further) further[one.finding].insert(one.number);
  for (const auto& [finding, cases] : further)
    out += fmt::format("also {} in {} case{} that one process would not have judged, the first of them {}\n", finding, cases.size(), cases.size() == 1 ? "" : "s", *cases.begin());
  return fit(out);
}

}  // namespace gradledger::report
