// Gates: the rows of all shards, as the files follow each other.
#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "tools/gradledger/merge.h"
#include "tools/gradledger/output.h"

namespace gradledger::tool {
namespace {

using nlohmann::json;
using report::MergedGateRow;

report::Problem problem_from(const json& in) {
  report::Problem out(in.at("text").get<std::string>(), in.at("rule"), text_or_nothing(in.at("pointer")));
  out.at = {in.at("line").is_null() ? 0 : in.at("line").get<std::size_t>(), in.at("column").is_null() ? 0 : in.at("column").get<std::size_t>()};
  return out;
}

Override override_from(const json& in) {
  Override out;
  in.at("option").get_to(out.option);
  in.at("pointer").get_to(out.pointer);
  out.value = in.at("value").dump();
  out.argument = out.option == "--as-of" ? in.at("value").get<std::string>() : out.pointer + "=" + out.value;
  return out;
}

// A row of what is no scenario has the command of the whole run.
std::string record_from(const RecordLine& line, const ShardReport& shard) {
  std::string out = line.text + "\n";
  if (line.value.at("command") != shard.command) return out;
  const auto command = [](const std::string& text) { return "\"command\":" + json(text).dump() + ","; };
  const std::string own = command(shard.command);
  if (const std::size_t at = out.find(own); at != std::string::npos) out.replace(at, own.size(), command(shard.head.run));
  return out;
}

// Throws what the library throws where something is not there or of another type.
MergedGateRow row_from(const RecordLine& line, const ShardReport& shard) {
  const json& in = line.value;
  MergedGateRow out;
  out.record = record_from(line, shard);
  report::GateRow& row = out.row;
  in.at("file").get_to(row.file);
  in.at("scenario").get_to(row.scenario);
  in.at("expected").get_to(row.expected);
  in.at("reported").get_to(row.reported);
  for (const json& problem : in.at("problems")) row.unmet.push_back(problem_from(problem));
  const std::string error = text_or_nothing(in.at("error"));
  row.bad_input = error == "bad input";
  row.unavailable = error == "not available";
  row.broken = error == "broken run";
  row.not_run = text_or_nothing(in.at("not_run"));
  in.at("seed").get_to(row.seed);
  in.at("seconds").get_to(row.seconds);
  in.at("updated").get_to(row.updated);
  in.at("vanished").get_to(row.vanished);
  for (const json& one : in.at("overrides")) row.overrides.push_back(override_from(one));
  for (const json& one : in.at("accepted")) row.accepted.push_back({one.at("class"), one.at("reason"), one.at("expires")});
  std::set<std::string> classes;
  for (const json& finding : in.at("findings")) classes.insert(finding.at("class").get<std::string>());
  for (const std::string& name : classes) out.classes[name] = 1;
  return out;
}

struct RowOfShard {
  MergedGateRow row;
  const ShardReport* of;
};

std::vector<RowOfShard> rows_of(const ShardReports& reports) {
  std::vector<RowOfShard> out;
  for (const auto& [number, shard] : reports.shards)
    for (const RecordLine& line : shard.records)
      if (line.value["record"] == "gate") out.push_back({row_from(line, shard), &shard});
  std::stable_sort(out.begin(), out.end(), [](const RowOfShard& a, const RowOfShard& b) { return std::filesystem::path(a.row.row.file) < std::filesystem::path(b.row.row.file); });
  return out;
}

// Scenarios that the shards chose from. Errors: they did not choose from the same.
Result<std::optional<std::uint64_t>> chosen_from(const ShardReports& reports) {
  std::optional<std::uint64_t> out;
  std::string first;
  for (const auto& [number, shard] : reports.shards) {
    if (!shard.summary || !shard.summary->at("counts").contains("scenarios")) continue;
    const json& counts = shard.summary->at("counts");
    const std::uint64_t files = counts.at("scenarios").get<std::uint64_t>() + counts.at("deselected").get<std::uint64_t>();
    if (out && *out != files) return InputError{shard.file, fmt::format("chose from {} scenarios; expected {}, as {} did: the files changed meanwhile", files, *out, first)};
    out = files;
    first = shard.file;
  }
  return out;
}

// A gate that loses a scenario on the way here would pass without it.
std::optional<InputError> rows_lost(const ShardReports& reports) {
  for (const auto& [number, shard] : reports.shards) {
    if (!shard.summary || !shard.summary->at("ended_by").is_null()) continue;
    const auto rows = static_cast<std::uint64_t>(std::count_if(shard.records.begin(), shard.records.end(), [](const RecordLine& line) { return line.value["record"] == "gate"; }));
    const std::uint64_t held = shard.summary->at("counts").value("scenarios", std::uint64_t{0});
    if (rows != held) return InputError{shard.file, fmt::format("has {} records of scenarios, and its summary says {}; expected a report as it was written", rows, held)};
  }
  return std::nullopt;
}

// That each shard counts alike.
std::uint64_t alike(const ShardReports& reports, const std::string& count) {
  std::uint64_t out = 0;
  for (const auto& [number, shard] : reports.shards)
    if (shard.summary) out = std::max(out, shard.summary->at("counts").value(count, std::uint64_t{0}));
  return out;
}

}  // namespace

std::optional<InputError> merge_gate(const ShardReports& reports, const Output& out) {
  std::vector<RowOfShard> rows = rows_of(reports);
  for (std::size_t i = 1; i < rows.size(); ++i)
    if (rows[i].row.row.file == rows[i - 1].row.row.file)
      return InputError{rows[i].of->file,
                        fmt::format("has {}, and so has {}; expected each scenario once: the files changed meanwhile", rows[i].row.row.file, rows[i - 1].of->file)};
  if (const auto error = rows_lost(reports)) return error;
  const auto all = chosen_from(reports);
  if (!all) return all.error();
  if (rows.empty() && reports.gone.empty() && reports.sum("scenarios") == 0 && reports.code() < 2)
    return InputError{"REPORT", "the shards held nothing; expected some scenarios, for a gate over nothing does not pass"};
  report::GateReport gate;
  gate.files = reports.sum("scenarios");
  for (RowOfShard& row : rows) {
    out.print(row.row);
    gate.files += !row.of->summary.has_value();  // of a shard that died: what it had held
    gate.rows.push_back(std::move(row.row.row));
  }
  gate.deselected = all->value_or(gate.files) - std::min<std::uint64_t>(all->value_or(gate.files), gate.files);
  gate.left_out.resize(std::min<std::uint64_t>(alike(reports, "left_out"), 1u << 20));
  gate.unused_untold = alike(reports, "unused_in_baseline");
  gate.ended_by = reports.ended_by();
  out.print(gate);
  return std::nullopt;
}

}  // namespace gradledger::tool
