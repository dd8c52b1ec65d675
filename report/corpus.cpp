#include "report/corpus.h"

#include <algorithm>

namespace gradledger::report {

std::size_t GateReport::passed() const {
  return static_cast<std::size_t>(std::count_if(rows.begin(), rows.end(), [](const GateRow& row) { return row.passed(); }));
}

std::size_t GateReport::failed() const {
  return static_cast<std::size_t>(std::count_if(rows.begin(), rows.end(), [](const GateRow& row) { return row.failed(); }));
}

std::size_t MutantReport::mutants() const {
  std::set<std::string> names;
  for (const MutantRow& row : rows) names.insert(row.mutant);
  return names.size();
}

std::size_t MutantReport::found() const {
  return static_cast<std::size_t>(std::count_if(rows.begin(), rows.end(), [](const MutantRow& row) { return row.found; }));
}

std::size_t CoverageReport::open() const {
  return static_cast<std::size_t>(std::count_if(rows.begin(), rows.end(), [](const CoverageRow& row) { return !row.problem.empty(); }));
}

}  // namespace gradledger::report
