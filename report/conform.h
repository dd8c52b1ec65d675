// Values of the verbs over recordings of real runs, beside the report of a run itself.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "report/report.h"

namespace gradledger::report {

// A trace that was written.
struct TraceRow {
  std::string file, scenario, producer;
  std::uint64_t passes = 0;
  std::string command;  // judges it
  double seconds = 0;   // that it took; filled in by whoever has a clock
};

// One recorded run beside its replay.
struct ConformRow {
  enum class Outcome : std::uint8_t { agrees, differs, inexpressible };
  std::string run, version;
  Outcome outcome = Outcome::agrees;
  std::string why;                // differs: where first and how; inexpressible: why; agrees: what was not compared
  std::uint64_t elements = 0;     // of buffers and weights, norms and errors, held against each other
  std::uint64_t collectives = 0;  // held against each other
};

std::string_view name_of(ConformRow::Outcome outcome);

struct ConformSummary {
  std::uint64_t agree = 0, in_part = 0, differ = 0, inexpressible = 0;
  std::uint64_t unreadable = 0;  // lines
  std::uint64_t elements = 0, collectives = 0;

  void add(const ConformRow& row);
  std::uint64_t runs() const { return agree + differ + inexpressible; }
};

// A recorded run of which the oracle was shown nothing.
struct NotJudgedRow {
  std::string run, version, why;
};

struct JudgeSummary {
  std::string command;  // repeats all of it
  std::uint64_t clean = 0, with_findings = 0, not_judged = 0;
  std::uint64_t unreadable = 0;  // lines, or whole traces
  std::uint64_t snapshots = 0, snapshots_not_judged = 0, elements = 0;
  std::uint64_t unexplained = 0;                 // snapshots that are wrong in a way that no weights explain
  std::map<std::string, std::uint64_t> classes;  // runs that show each

  void add(const Report& report);
  void add(const NotJudgedRow&) {
    ++not_judged;
    of_recordings = true;
  }
  bool of_recordings = false;  // one run with given data among them
  std::uint64_t judged() const { return clean + with_findings; }
};

// What no recording tells, whatever is in it.
inline constexpr const char* recordings_do_not_tell = "order of streams and races, what happens within an operation, memory, the loss scale that a step reports";

}  // namespace gradledger::report
