// A whole run for other programs: JUnit, SARIF, TAP and GitHub know scenarios that passed, failed, broke or did not run, and what is wrong in them. Whatever
// a verb shows comes to this, and a format of results says it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "report/corpus.h"
#include "report/problem.h"
#include "report/report.h"
#include "report/runs.h"
#include "report/searches.h"
#include "report/version/version.h"

namespace gradledger::report {

enum class Status : std::uint8_t { passed, failed, error, not_run };
std::string_view name_of(Status status);

// One scenario.
struct CaseResult {
  std::string name, file;  // file: empty where it is of none
  Status status = Status::passed;
  std::string why;                // of an error, and of one that was not run
  std::vector<Problem> problems;  // of a failure, and of a file that is no scenario
  std::string engine, as_of, producer, command, identity;
  double seconds = 0;
};

struct Results {
  Version tool = version();
  std::string command;   // the whole run
  std::string verb;      // "gate"
  std::string producer;  // with its releases, where those are known
  std::uint64_t seed = 0;
  std::vector<CaseResult> cases;

  std::size_t count(Status status) const;
  double seconds() const;
};

// What each verb shows, as a case. Others show nothing of that kind.
CaseResult case_of(const GateRow& row);
CaseResult case_of(const Report& report);
CaseResult case_of(const ProducersReport& report);
std::vector<CaseResult> cases_of(const FuzzReport& report);

// An error instead of a case: of a file, or where that is empty of the run. Its text may begin with the place in the file.
CaseResult error_case(const std::string& name, const std::string& file, const std::vector<InputError>& errors);

// Formats that need the whole: counts stand first in most of them.
struct ResultFormat {
  std::string_view name;  // of the option that takes its file
  std::string_view what;
  std::string (*text)(const Results& results);
};
std::span<const ResultFormat> result_formats();

std::string junit(const Results& results);
std::string sarif(const Results& results);
std::string tap(const Results& results);

// Workflow commands of GitHub for standard output, and the step's summary in Markdown.
inline constexpr std::size_t annotations_max = 9;
std::string github_annotations(const Results& results);
std::string github_summary(const Results& results);

}  // namespace gradledger::report
