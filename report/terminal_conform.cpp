// Recorded runs for people.
#include <fmt/format.h>

#include "report/terminal.h"
#include "report/words.h"

namespace gradledger::report {

std::string Terminal::text(const TraceRow& row) const {
  return fmt::format("written             {}: {}, {} pass{} of {}\njudge it with: {}\n", in_short(row.file), in_short(row.scenario), row.passes, row.passes == 1 ? "" : "es",
                     in_short(row.producer), row.command);
}

std::string Terminal::text(const ConformRow& row) const {
  return fmt::format("{:20}{} at {}{}{}\n", name_of(row.outcome), in_short(row.run), in_short(row.version), row.why.empty() ? "" : ": ", in_short(row.why));
}

std::string Terminal::text(const ConformSummary& s) const {
  return fmt::format("{} agree{}, {} differ, {} cannot be expressed{}; {} elements and {} collectives compared\n", s.agree,
                     s.in_part == 0 ? "" : fmt::format(" ({} of them in part)", s.in_part), s.differ, s.inexpressible,
                     s.unreadable == 0 ? "" : fmt::format(", {} cannot be read", s.unreadable), s.elements, s.collectives);
}

std::string Terminal::text(const NotJudgedRow& row) const { return fmt::format("not judged          {} at {}: {}\n", in_short(row.run), in_short(row.version), in_short(row.why)); }

std::string Terminal::text(const JudgeSummary& s) const {
  std::string out;
  for (const auto& [name, runs] : s.classes) out += fmt::format("{:20}in {} run{}\n", name, runs, runs == 1 ? "" : "s");
  return out + fmt::format("{} clean, {} with findings, {} not judged{}; {} snapshots of {} elements judged, {} not{}\n", s.clean, s.with_findings, s.not_judged,
                           s.unreadable == 0 ? "" : fmt::format(", {} not readable", s.unreadable), s.snapshots, s.elements, s.snapshots_not_judged,
                           s.of_recordings ? fmt::format(". No recording tells: {}", recordings_do_not_tell) : "");
}

}  // namespace gradledger::report
