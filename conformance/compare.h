// Holds a recording against a replay by the engine and release that produced it.
#pragma once

#include <cstdint>
#include <string>

#include "conformance/recording.h"

namespace gradledger::conform {

enum class Outcome { agrees, differs, inexpressible };

struct Comparison {
  std::string name;
  std::string version;
  Outcome outcome = Outcome::agrees;
  std::string why;                // differs: where first and how; inexpressible: why; agrees: what was not judged
  std::uint64_t elements = 0;     // of buffers and weights, norms and errors, held against each other
  std::uint64_t collectives = 0;  // held against each other

  bool in_part() const { return outcome == Outcome::agrees && !why.empty(); }
};

// Precondition: the recording came from express().
Comparison compare(const Recording& recording);

// express, then compare. Errors: an operation is malformed.
Result<Comparison> judge(const RecordedRun& run);

}  // namespace gradledger::conform
