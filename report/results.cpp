#include "report/results.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "report/words.h"

namespace gradledger::report {

std::string_view name_of(Status status) {
  switch (status) {
    case Status::passed: return "passed";
    case Status::failed: return "failed";
    case Status::error: return "error";
    case Status::not_run: return "not run";
  }
  return "";
}

std::size_t Results::count(Status status) const {
  return static_cast<std::size_t>(std::count_if(cases.begin(), cases.end(), [&](const CaseResult& c) { return c.status == status; }));
}

double Results::seconds() const {
  double out = 0;
  for (const CaseResult& c : cases) out += c.seconds;
  return out;
}

namespace {

// What is wrong with the file, in lines; else what ended the run.
std::string errors_of(const GateRow& row) {
  std::string out;
  for (const Problem& problem : row.unmet)
    if (problem.rule == bad_scenario) out += (out.empty() ? "" : "\n") + problem.text;
  return out.empty() || row.broken ? row.unmet.back().text : out;
}

}  // namespace

CaseResult case_of(const GateRow& row) {
  CaseResult out;
  out.name = row.scenario;
  out.file = row.file;
  out.problems = row.unmet;
  out.engine = row.engine;
  out.as_of = row.as_of;
  out.producer = row.producer;
  out.command = row.command;
  out.identity = row.identity;
  out.seconds = row.seconds;
  out.status = row.broken || row.bad_input || row.unavailable ? Status::error : row.failed() ? Status::failed : row.not_run.empty() ? Status::passed : Status::not_run;
  out.why = row.not_run;
  if (out.status == Status::error) out.why = errors_of(row);
  if (row.broken || row.unavailable) out.problems.clear();  // nothing is wrong with the file
  return out;
}

CaseResult case_of(const Report& report) {
  CaseResult out;
  out.name = report.scenario;
  out.file = report.file;
  out.engine = report.engine;
  out.as_of = report.as_of.base;
  out.producer = report.producer;
  out.command = report.command;
  out.identity = report.identity;
  out.seconds = report.seconds;
  for (const Finding& f : report.findings) {
    out.problems.emplace_back(f.sentence, std::string(name_of(f.finding)), f.pointer, buffer_family(f.buffer));
    out.problems.back().at = f.at;
  }
  if (!out.problems.empty()) out.status = Status::failed;
  return out;
}

CaseResult case_of(const ProducersReport& report) {
  CaseResult out;
  out.name = report.scenario;
  out.producer = report.compare;
  if (!report.equal) {
    out.status = Status::failed;
    out.problems.emplace_back(report.text);
  }
  return out;
}

std::vector<CaseResult> cases_of(const FuzzReport& report) {
  std::vector<CaseResult> out;
  for (const FoundRow& row : report.found) {
    const bool there = row.status == "new" || row.status == "found again" || row.status == "still there";
    CaseResult found;
    found.name = fmt::format("{} {} {}", row.finding, row.engine, row.shape);
    found.file = row.file;
    found.engine = row.engine;
    found.status = there ? Status::failed : Status::passed;
    if (row.not_taken()) {
      found.name = row.file;
      found.status = Status::not_run;
      found.why = row.sentence;
    }
    if (there) found.problems.emplace_back(row.sentence, row.finding);
    out.push_back(std::move(found));
  }
  for (const BrokenCase& broken : report.broken) {
    out.push_back(error_case(fmt::format("case {}", broken.number), "", {{"", broken.what}}));
    out.back().command = broken.command;
  }
  CaseResult campaign;
  campaign.name = "campaign";
  campaign.command = report.command;
  campaign.seconds = report.seconds;
  if (report.nondeterminism) campaign = error_case("campaign", "", {{"", "not deterministic: " + *report.nondeterminism}});
  else if (!report.canary) campaign = error_case("campaign", "", {{"", "the fault that must be found was not; what this campaign says means nothing"}});
  out.push_back(std::move(campaign));
  return out;
}

Problem problem_of(const InputError& error, const std::string& file) {
  const Place place = place_from(error.where, file);
  Problem out(error.text(), bad_scenario, place.pointer);
  out.at = place.at;
  return out;
}

CaseResult error_case(const std::string& name, const std::string& file, const std::vector<InputError>& errors) {
  CaseResult out;
  out.name = name;
  out.file = file;
  out.status = Status::error;
  for (const InputError& one : errors) {
    out.why += (out.why.empty() ? "" : "\n") + one.text();
    if (!file.empty()) out.problems.push_back(problem_of(one, file));
  }
  return out;
}

std::span<const ResultFormat> result_formats() {
  static const std::array<ResultFormat, 3> all{{
      {"junit", "JUnit's XML, as Jenkins and GitLab read it: a test case a scenario", junit},
      {"sarif", "SARIF 2.1.0, as code scanning reads it: a result for each problem, with its rule, file and line", sarif},
      {"tap", "TAP 14, the Test Anything Protocol: a test point a scenario", tap},
  }};
  return all;
}

}  // namespace gradledger::report
