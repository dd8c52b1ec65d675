// What a whole run came to, for programs: the last record of every verb, and the errors before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/audit.h"
#include "report/conform.h"
#include "report/corpus.h"
#include "report/report.h"
#include "report/runs.h"
#include "report/searches.h"
#include "report/shards.h"
#include "sim/base/result.h"

namespace gradledger::report {

// Something that is not right, and what the command ends with for it.
struct ErrorRow {
  std::string file, pointer, option, message;  // each of the first three may be empty
  Position at;
  int exit_code = 0;
};

// The parts of an error. Where a file has a name that reads as a place, the place may be wrong; file and message together have all of it.
ErrorRow error_row(const InputError& error, int exit_code);

class Summary {
 public:
  std::string verb;
  std::optional<std::uint64_t> seed;
  double seconds = 0;
  int exit_code = 0;
  std::string ended_by;  // what ended it before it was through; empty: nothing did
  std::size_t errors = 0;
  std::vector<std::pair<std::string, std::int64_t>> counts;  // names are the verb's own
  std::map<std::string, std::size_t> classes;                // of findings: in how many scenarios, runs or cases each was found

  // Of what is printed.
  void add(const Report& report);
  void add(const AccountingReport& report);
  void add(const ProducersReport& report);
  void add(const GateRow& row);
  void add(const GateReport& report);
  void add(const MutantReport& report);
  void add(const CoverageReport& report);
  void add(const Listing& listing);
  void add(const TraceRow& row);
  void add(const ConformSummary& summary);
  void add(const JudgeSummary& summary);
  void add(const FoundRow& row);
  void add(const FuzzReport& report);
  void add(const DifferSummary& summary);
  void add(const HuntSummary& summary);
  void add(const ExploreReport& report);
  void add(const OrdersReport& report);
  void add(const AuditReport& report);
  void add(const MergedGateRow& row);
  void add(const MergedExploration& exploration) { add(exploration.report); }
  void add(const ErrorRow&) { ++errors; }
  template <class Other>
  void add(const Other&) {}  // a row whose whole counts it

 private:
  void count(const std::string& name, std::int64_t more);
  template <class Number>
  void set(std::initializer_list<std::pair<const char*, Number>> all);
  void add_classes(const std::vector<Finding>& findings);
};

}  // namespace gradledger::report
