// Shards and their joined reports for people.
#include <fmt/format.h>

#include "report/terminal.h"

namespace gradledger::report {

std::string Terminal::text(const ShardRow& row) const {
  std::string variables;
  for (const auto& [name, value] : row.variables) variables += fmt::format("{}{}={}", variables.empty() ? ", by " : " ", name, value);
  const std::string launcher = row.launcher.empty() ? "" : " of " + row.launcher;
  return fit(fmt::format("# shard {} of {}{}{}\n", row.shard, row.shards, launcher, variables));
}

std::string Terminal::text(const MergeReport& merge) const {
  std::string out = fmt::format("# merged: {} of {} shards of {}\n", merge.parts.size(), merge.shards, merge.verb);
  for (const MergeReport::Part& part : merge.parts)
    if (!part.ended_by.empty()) out += fmt::format("shard {} was ended by {}: {}\n", part.shard, part.ended_by, part.file);
  for (const MergeReport::Missing& one : merge.missing) out += fmt::format("shard {} is missing: {}{}\n", one.shard, one.why, one.file.empty() ? "" : ": " + one.file);
  if (!merge.further.empty()) out += fmt::format("{} findings of cases like others before them, which one process would not have judged:\n", merge.further.size());
  for (const MergeReport::Further& one : merge.further) out += fmt::format("  case {}: {}\n", one.number, one.finding);
  return fit(out);
}

}  // namespace gradledger::report
