// Recordings judged by the oracle directly: what a real run held against what the documentation has due, with no engine between.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "ref/oracle.h"
#include "tools/conformance/recording.h"

namespace gradledger::conform {

enum class JudgedAs { clean, findings, not_judged };

struct Judged {
  std::string name;
  std::string version;
  JudgedAs outcome = JudgedAs::not_judged;
  std::string why;       // not judged: why; else what of the run was not, beside what no recording tells
  ref::Verdict verdict;  // empty where there is no run
};

// What a recording does not tell, whatever is in it: a sentence for the end of a report.
inline constexpr const char* recordings_do_not_tell = "order of streams and races, what happens within an operation, memory, the loss scale that a step reports";

// Errors: an operation is malformed.
Result<Judged> judge_alone(const RecordedRun& run);
// Precondition: the recording came from express().
Judged judge_alone(const Recording& recording);

// "findings            NAME at VERSION: 2 findings", and a line each.
std::string text_of(const Judged& judged);
nlohmann::ordered_json json_of(const Judged& judged);

struct JudgedTotals {
  std::uint64_t clean = 0, with_findings = 0, not_judged = 0;
  std::uint64_t snapshots = 0, snapshots_not_judged = 0, elements = 0;
  std::uint64_t unexplained = 0;                 // snapshots that are wrong in a way that weights do not explain
  std::map<std::string, std::uint64_t> classes;  // runs that show each

  void add(const Judged& judged);
};

std::string text_of(const JudgedTotals& totals);
nlohmann::ordered_json json_of(const JudgedTotals& totals);

}  // namespace gradledger::conform
