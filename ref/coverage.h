// What a verdict rests on: how much was judged, what was not and why. A run in which nothing was judged is no clean run.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "ref/due.h"
#include "ref/steps.h"

namespace gradledger::ref {

struct Coverage {
  // Snapshots of gradients, in one pass.
  std::uint64_t judged = 0;
  std::array<std::uint64_t, reasons_not_due> not_judged{};  // by reason
  // Windows that the contract has a step close, and those of them whose applied gradient, or whose skip, was judged.
  std::uint32_t windows_closed = 0, windows_judged = 0;
  std::vector<MissingFact> missing;      // what steps did not say, and therefore was not judged
  std::vector<std::uint32_t> not_shown;  // step events of judged windows whose applied gradient nobody promised, and nobody showed
  std::string nothing;                   // why nothing was judged; empty: something was

  std::uint64_t snapshots() const;  // judged or not
};

// applied: the step events of which some element was compared. decided: those whose due skip was judged.
Coverage coverage_of(const Workload& workload, const Timeline& timeline, const std::set<std::uint32_t>& applied, const std::set<std::uint32_t>& decided);

}  // namespace gradledger::ref
