// Holds a recording against a replay by the engine and release that produced it.
#pragma once

#include <optional>
#include <string>

#include "tools/conform/recording.h"

namespace gradledger::conform {

enum class Outcome { agrees, differs, inexpressible };

struct Comparison {
  std::string name;
  std::string version;
  Outcome outcome = Outcome::agrees;
  std::string why;               // differs: where first and how; inexpressible: why
  std::uint64_t compared = 0;    // elements held against each other
};

Comparison compare(const Recording& recording);

}  // namespace gradledger::conform
