// TAP 14. Its diagnostics are YAML, of which JSON's strings and numbers are a part.
#include <fmt/format.h>

#include "report/escape.h"
#include "report/json_parts.h"
#include "report/results.h"

namespace gradledger::report {
namespace {

// A description ends at a "#".
std::string description(const std::string& text) {
  std::string out;
  for (const char c : printable_line(text)) {
    if (c == '#' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string yaml(const ordered_json& value) { return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace); }

std::string diagnostics(const CaseResult& result) {
  std::string out = "  ---\n";
  const auto line = [&](const char* key, const ordered_json& value) { out += fmt::format("  {}: {}\n", key, yaml(value)); };
  const bool has_problem = !result.problems.empty();
  line("message", result.status == Status::error || !has_problem ? result.why : result.problems.front().text);
  line("severity", result.status == Status::error ? "error" : "fail");
  if (!result.file.empty()) line("file", result.file);
  if (!result.command.empty()) line("command", result.command);
  line("duration_ms", static_cast<std::uint64_t>(result.seconds * 1000));
  if (has_problem) out += "  problems:\n";
  for (const Problem& problem : result.problems) {
    ordered_json entry{{"rule", problem.rule}, {"text", problem.text}, {"pointer", problem.pointer}};
    entry.update(position_json(problem.at));
    out += fmt::format("    - {}\n", yaml(entry));
  }
  return out + "  ...\n";
}

}  // namespace

std::string tap(const Results& results) {
  std::string out = fmt::format("TAP version 14\n1..{}\n# {}\n", results.cases.size(), printable_line(results.command));
  for (std::size_t i = 0; i < results.cases.size(); ++i) {
    const CaseResult& result = results.cases[i];
    const bool fails = result.status == Status::failed || result.status == Status::error;
    out += fmt::format("{} {} - {}", fails ? "not ok" : "ok", i + 1, description(result.name));
    if (result.status == Status::not_run) out += " # SKIP " + description(result.why);
    out += "\n";
    if (fails) out += diagnostics(result);
  }
  return out;
}

}  // namespace gradledger::report
