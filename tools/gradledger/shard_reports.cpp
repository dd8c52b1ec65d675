#include "tools/gradledger/shard_reports.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "sim/base/files.h"
#include "sim/scenario/json_reader.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/numbers.h"

namespace gradledger::tool {
namespace {

using nlohmann::json;

constexpr int records_version = 2;

InputError no_report(const std::string& file, std::size_t line, const std::string& why) {
  return {fmt::format("{}:{}", file, line), why + "; expected a report of gradledger gate or fuzz with --shard, or of explore with --mpi, as --records or --json write it"};
}

Result<json> record_from(const std::string& file, std::size_t number, const std::string& line) {
  auto value = read_json(line);
  if (!value) return no_report(file, number, "is no JSON object");
  const bool record = value->is_object() && value->value("record", json()).is_string();
  if (!record) return no_report(file, number, "is no record");
  if (value->value("schema_version", json()) != records_version) return no_report(file, number, "is a record of another version than " + std::to_string(records_version));
  return value;
}

template <class T>
std::optional<T> optional_of(const json& value) {
  return value.is_null() ? std::nullopt : std::optional<T>(value.get<T>());
}

// Throws what the library throws where something is not there or of another type.
report::ShardRow head_from(const json& in) {
  report::ShardRow out;
  in.at("verb").get_to(out.verb);
  in.at("shard").get_to(out.shard);
  in.at("shards").get_to(out.shards);
  out.launcher = text_or_nothing(in.at("launcher"));
  in.at("run").get_to(out.run);
  in.at("seed").get_to(out.seed);
  if (const json& d = in.at("draws"); !d.is_null())
    out.draws = report::DrawnFrom{optional_of<std::uint64_t>(d.at("cases")),
                                  optional_of<std::uint64_t>(d.at("time")),
                                  optional_of<std::uint64_t>(d.at("case")),
                                  d.at("engines").get<std::vector<std::string>>(),
                                  d.at("as_of"),
                                  d.at("switches").get<std::vector<std::string>>(),
                                  d.at("any_script")};
  return out;
}

// Nothing where the process died before it had said which shard it is. The last line is half a one where it died while it wrote it.
Result<std::optional<ShardReport>> report_from(const std::string& file, const std::string& text) {
  ShardReport out;
  out.file = file;
  std::size_t number = 0;
  for (std::size_t at = 0, end = text.find('\n'); end != std::string::npos; at = end + 1, end = text.find('\n', at)) {
    RecordLine line{++number, text.substr(at, end - at), {}};
    auto value = record_from(file, number, line.text);
    if (!value) return value.error();
    if (out.summary) return no_report(file, number, "stands behind the summary");
    line.value = std::move(value).value();
    const std::string record = line.value["record"];
    if ((number == 1) != (record == "shard"))
      return no_report(file, number, number == 1 ? "is a record \"" + record + "\", and not that of a shard" : "is the head of another report");
    if (number == 1) {
      out.head = head_from(line.value);
      out.tool = line.value.at("tool").dump();
      line.value.at("command").get_to(out.command);
      if (out.head.shards == 0 || out.head.shards > shards_max || out.head.shard >= out.head.shards) return no_report(file, number, "names no shard");
    } else if (record == "summary") {
      const int code = line.value.at("exit_code");
      if (std::none_of(exit_codes.begin(), exit_codes.end(), [&](const ExitCodeInfo& one) { return one.code == code; }))
        return no_report(file, number, "has no exit code of gradledger");
      out.summary = std::move(line.value);
    } else {
      out.records.push_back(std::move(line));
    }
  }
  if (number == 0) return std::optional<ShardReport>();
  return std::optional(std::move(out));
}

std::optional<InputError> differs(const ShardReport& one, const ShardReport& other) {
  const auto said = [&](const std::string& what, const std::string& its, const std::string& others) {
    return InputError{other.file, fmt::format("is of {} {}; expected {}, as {} is", what, others, its, one.file)};
  };
  if (one.head.verb != other.head.verb) return said("the verb", one.head.verb, other.head.verb);
  if (one.head.run != other.head.run) return said("the run", "`" + one.head.run + "`", "`" + other.head.run + "`");
  if (one.head.shards != other.head.shards) return said("a run with this number of shards:", std::to_string(one.head.shards), std::to_string(other.head.shards));
  if (one.tool != other.tool) return said("another build,", one.tool, other.tool);
  return std::nullopt;
}

std::optional<InputError> too_large(const std::vector<std::string>& files, std::uint64_t bytes_max) {
  std::uint64_t bytes = 0;
  std::error_code none;
  for (const std::string& file : files)
    if (std::filesystem::is_regular_file(file, none)) bytes += std::filesystem::file_size(file, none);
  if (bytes <= bytes_max) return std::nullopt;
  return InputError{"REPORT", fmt::format("the reports are {} bytes together; expected at most {}, a sixteenth of --memory-limit", bytes, bytes_max), true};
}

std::optional<InputError> take(ShardReport report, ShardReports& into) {
  if (into.shards.empty()) into.run = report.head;
  else if (auto error = differs(into.shards.begin()->second, report)) return error;
  const auto [there, added] = into.shards.try_emplace(report.head.shard, std::move(report));
  if (added) return std::nullopt;
  return InputError{report.file, fmt::format("is of shard {}, and so is {}; expected each shard once", there->first, there->second.file)};
}

}  // namespace

std::string text_or_nothing(const json& value) { return value.is_null() ? "" : value.get<std::string>(); }

Result<ShardReports> read_shard_reports(const std::vector<std::string>& files, std::optional<std::uint32_t> expected, std::uint64_t bytes_max) {
  if (const auto error = too_large(files, bytes_max)) return *error;
  ShardReports out;
  std::vector<std::string> of_nobody;
  for (const std::string& file : files) {
    std::error_code failed;
    const bool there = std::filesystem::exists(file, failed);
    const auto text = there ? read_file(file, bytes_max) : Result<std::string>("");
    if (!text) return text.error();
    try {
      auto report = report_from(file, *text);
      if (!report) return report.error();
      if (!*report) of_nobody.push_back(there ? "the report is empty: " + file : "there is no file " + file);
      else if (auto error = take(std::move(**report), out)) return *error;
    } catch (const json::exception&) {
      return no_report(file, 1, "the head or the summary lacks a field");
    }
  }
  if (std::error_code none; out.shards.empty() && !std::filesystem::exists(files.front(), none)) return read_file(files.front()).error();
  if (out.shards.empty()) return InputError{files.front(), "is no report of a shard, and nor are the others; expected some"};
  if (expected && *expected != out.run.shards)
    return InputError{"--expect", fmt::format("is {}, and the reports are of a run with {} shards; expected the number of the run", *expected, out.run.shards)};
  auto nobody = of_nobody.begin();
  for (std::uint32_t shard = 0; shard < out.run.shards; ++shard) {
    const auto report = out.shards.find(shard);
    if (report == out.shards.end()) out.gone.push_back({shard, "", nobody == of_nobody.end() ? "there is no report of it" : *nobody++});
    else if (!report->second.summary) out.gone.push_back({shard, report->second.file, "its report has no summary, so that it died or is not done"});
  }
  if (nobody != of_nobody.end()) return InputError{files.front(), "every shard has a report, and " + *nobody + "; expected a report in each file"};
  return out;
}

report::MergeReport ShardReports::overview() const {
  report::MergeReport out;
  out.verb = run.verb;
  out.shards = run.shards;
  for (const auto& [number, shard] : shards) {
    if (!shard.summary) continue;
    out.parts.push_back({number, shard.file, shard.head.launcher, shard.summary->at("exit_code").get<int>(), text_or_nothing(shard.summary->at("ended_by"))});
  }
  out.missing = gone;
  return out;
}

int ShardReports::code() const {
  int out = gone.empty() ? clean : broken_run;
  for (const auto& [number, shard] : shards)
    if (shard.summary) out = std::max(out, shard.summary->at("exit_code").get<int>());
  return out;
}

std::string ShardReports::ended_by() const {
  for (const auto& [number, shard] : shards)
    if (shard.summary && !shard.summary->at("ended_by").is_null()) return shard.summary->at("ended_by");
  return "";
}

std::uint64_t ShardReports::sum(const std::string& count) const {
  std::uint64_t out = 0;
  for (const auto& [number, shard] : shards)
    if (shard.summary) out += shard.summary->at("counts").value(count, std::uint64_t{0});
  return out;
}

std::vector<report::ErrorRow> ShardReports::errors() const {
  std::vector<report::ErrorRow> out;
  std::set<std::string> seen;
  for (const auto& [number, shard] : shards)
    for (const RecordLine& line : shard.records) {
      if (line.value["record"] != "error") continue;
      json what = line.value;
      what.erase("command");
      if (!seen.insert(what.dump()).second) continue;
      const auto text = [&](const char* key) { return text_or_nothing(what.at(key)); };
      const auto place = [&](const char* key) { return optional_of<std::size_t>(what.at(key)).value_or(0); };
      out.push_back({text("file"), text("pointer"), text("option"), text("message"), {place("line"), place("column")}, what.at("exit_code").get<int>()});
    }
  return out;
}

}  // namespace gradledger::tool
