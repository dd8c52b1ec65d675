// GitHub's workflow commands, and the summary of a step.
#include <algorithm>

#include <fmt/format.h>

#include "report/escape.h"
#include "report/results.h"

namespace gradledger::report {
namespace {

// What ends a command, or one of its properties, is escaped by percent signs.
std::string escaped(std::string_view text, bool property) {
  std::string out;
  for (const char c : valid_utf8(text)) {
    if (c == '%' || c == '\r' || c == '\n' || (property && (c == ':' || c == ','))) out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    else out += c;
  }
  return out;
}

struct Annotation {
  const CaseResult* of;
  const Problem* problem;  // none: the case is an error without one

  const std::string& text() const { return problem ? problem->text : of->why; }
};

std::vector<Annotation> annotations_of(const Results& results) {
  std::vector<Annotation> out;
  for (const CaseResult& result : results.cases) {
    for (const Problem& problem : result.problems) out.push_back({&result, &problem});
    if (result.problems.empty() && result.status == Status::error) out.push_back({&result, nullptr});
  }
  return out;
}

std::string command_of(const Annotation& annotation) {
  std::string out = "::error ";
  if (!annotation.of->file.empty()) out += fmt::format("file={},", escaped(annotation.of->file, true));
  if (annotation.problem && annotation.problem->at.known()) out += fmt::format("line={},col={},", annotation.problem->at.line, annotation.problem->at.column);
  const std::string title = annotation.of->name + (annotation.problem ? ": " + annotation.problem->rule : "");
  return out + fmt::format("title={}::{}\n", escaped(title, true), escaped(annotation.text(), false));
}

// A cell of a table: nothing in it is markup, and all rows together are less than GitHub takes.
std::string cell(std::string_view text) {
  constexpr std::size_t bytes_max = 1000;
  std::string out;
  for (const char c : printable_line(text.substr(0, bytes_max)) + (text.size() > bytes_max ? " ..." : "")) {
    if (std::string_view("\\`*_{}[]<>()#+!|~&@").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string row_of(const CaseResult& result) {
  const bool has_problem = !result.problems.empty();
  std::string place = result.file;
  if (has_problem && result.problems.front().at.known()) place += fmt::format(":{}:{}", result.problems.front().at.line, result.problems.front().at.column);
  std::string what = result.status == Status::failed && has_problem ? result.problems.front().text : result.why;
  if (result.problems.size() > 1) what += fmt::format(" (and {} more)", result.problems.size() - 1);
  return fmt::format("| {} | {} | {} | {} |\n", name_of(result.status), cell(result.name), cell(place), cell(what));
}

}  // namespace

std::string github_annotations(const Results& results) {
  const std::vector<Annotation> all = annotations_of(results);
  std::string out;
  for (std::size_t i = 0; i < std::min(all.size(), annotations_max); ++i) out += command_of(all[i]);
  if (all.size() <= annotations_max) return out;
  const std::size_t more = all.size() - annotations_max;
  return out + fmt::format("::error title=gradledger::and {} more problem{}; the step's summary and its log have them\n", more, more == 1 ? "" : "s");
}

std::string github_summary(const Results& results) {
  constexpr std::size_t rows_max = 200;  // GitHub takes a mebibyte from a step
  std::string out = fmt::format("### gradledger {}\n\n{} passed, {} failed, {} errors, {} not run\n\n", results.verb, results.count(Status::passed), results.count(Status::failed),
                                results.count(Status::error), results.count(Status::not_run));
  std::size_t rows = 0;
  for (const CaseResult& result : results.cases) {
    if (result.status == Status::passed) continue;
    if (rows == 0) out += "| outcome | scenario | place | what |\n| --- | --- | --- | --- |\n";
    if (++rows <= rows_max) out += row_of(result);
  }
  if (rows > rows_max) out += fmt::format("\nand {} more\n", rows - rows_max);
  return out + "\n";
}

}  // namespace gradledger::report
