// The oracle against faults that it must report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "report/corpus.h"
#include "sim/base/result.h"

namespace gradledger::verbs {

struct MutantOptions {
  std::uint64_t seed = 0;
  std::vector<std::string> only;  // by name; empty: all
  std::uint32_t cases = 24;       // in which a mutant must be found, in each of its engines
  std::uint32_t jobs = 1;
  std::function<bool()> stop = [] { return false; };                                         // asked before each, by every thread; the report has those before
  std::function<void(std::size_t, std::size_t)> progress = [](std::size_t, std::size_t) {};  // how many are done, and of how many
};

// Plants every fault in each of its engines. Errors: a name that is no mutant's.
Result<report::MutantReport> gate_mutants(const MutantOptions& options);

}  // namespace gradledger::verbs
