// The reports for other programs that a run writes beside what it prints. Rows are collected as they are printed, and written at the end, also where the run breaks
// off.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "report/results.h"
#include "sim/base/result.h"
#include "tools/gradledger/options.h"

namespace gradledger::tool {

class ResultFiles {
 public:
  ResultFiles(const Options& options, std::string verb);

  // Before the run: options that do not go together, a file that cannot be written. Nothing is created yet.
  std::optional<InputError> problem() const;
  // GitHub's runner obeys commands in what is printed from here on until finish(): those of the run's texts are switched off.
  void begin();

  void add(const report::GateRow& row) { add_case(report::case_of(row)); }
  void add(const report::Report& report) { add_case(report::case_of(report)); }
  void add(const report::ProducersReport& report) { add_case(report::case_of(report)); }
  void add(const report::FuzzReport& report);
  void add(const report::GateReport& report);  // that it was ended before all were held
  template <class Other>
  void add(const Other&) {}
  void add_errors(const std::string& file, const std::vector<InputError>& errors);
  void add_not_run(const std::string& file, const std::string& why);

  // An exit code that no case explains is an error of the run.
  void explain(int code);

  // Whether a report goes there, and the run's own text does not.
  bool take_standard_output() const { return takes_standard_output_; }
  // Writes them all. Error: the first that cannot be written.
  std::optional<InputError> finish();

 private:
  void add_case(report::CaseResult result) { results_.cases.push_back(std::move(result)); }
  std::optional<InputError> write(const std::string& option, const std::string& file, const std::string& text) const;

  const Options& options_;
  report::Results results_;
  bool takes_standard_output_ = false;
  std::string resume_;  // what switches GitHub's commands on again
};

// The exit code of a run, after its results are written. What the run throws goes on once they are.
int with_results(ResultFiles& files, const std::function<int()>& run);

}  // namespace gradledger::tool
