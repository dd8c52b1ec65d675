// Looking for a fault: cases are drawn until the oracle reports it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "search/mutants/mutant.h"

namespace gradledger::search {

struct Hunt {
  std::uint32_t cases = 0;  // judged, the one that found it included
  bool found = false;
  std::vector<ref::FindingClass> reported;  // with the fault, in the last case, each class once
  std::optional<Scenario> scenario;         // in which it was found
};

// Found: reported with a fitting class that the same case does not have without the fault. Cases are of the framework of the mutant's first variant.
Hunt hunt(const Mutant& mutant, std::uint64_t seed, std::uint32_t cases_max);
// Likewise among the cases of one of the mutant's variants.
Hunt hunt(const Mutant& mutant, std::string_view variant, std::uint64_t seed, std::uint32_t cases_max);

// The classes of findings that a judgement has, each once, with engines of this make.
std::vector<ref::FindingClass> reported_classes(const Scenario& scenario, EngineFactory factory, std::uint64_t seed);

}  // namespace gradledger::search
