#include "report/report.h"

namespace gradledger::report {

std::string_view name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::clean: return "clean";
    case Outcome::findings: return "findings";
    case Outcome::nothing_judged: return "nothing judged";
  }
  expects(false, "an outcome");
  return "";
}

FoundIn Report::found_in() const { return {scenario, file, engine, parameters, seed}; }

Outcome Report::outcome() const {
  if (!findings.empty()) return Outcome::findings;
  return coverage.nothing.empty() ? Outcome::clean : Outcome::nothing_judged;
}

}  // namespace gradledger::report
