#include "report/conform.h"

#include <set>

namespace gradledger::report {

std::string_view name_of(ConformRow::Outcome outcome) {
  switch (outcome) {
    case ConformRow::Outcome::agrees: return "agrees";
    case ConformRow::Outcome::differs: return "differs";
    case ConformRow::Outcome::inexpressible: return "cannot be expressed";
  }
  return "";
}

void ConformSummary::add(const ConformRow& row) {
  agree += row.outcome == ConformRow::Outcome::agrees;
  in_part += row.outcome == ConformRow::Outcome::agrees && !row.why.empty();
  differ += row.outcome == ConformRow::Outcome::differs;
  inexpressible += row.outcome == ConformRow::Outcome::inexpressible;
  elements += row.elements;
  collectives += row.collectives;
}

void JudgeSummary::add(const Report& report) {
  clean += report.outcome() == Outcome::clean;
  with_findings += report.outcome() == Outcome::findings;
  not_judged += report.outcome() == Outcome::nothing_judged;
  snapshots += report.coverage.judged;
  snapshots_not_judged += report.coverage.snapshots() - report.coverage.judged;
  elements += report.statistics.values.elements;
  unexplained += report.unexplained;
  of_recordings = of_recordings || report.one_pass;
  std::set<std::string> shown;
  for (const Finding& f : report.findings) shown.insert(std::string(ref::name_of(f.finding)));
  for (const std::string& name : shown) ++classes[name];
}

}  // namespace gradledger::report
