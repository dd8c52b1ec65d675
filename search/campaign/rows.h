// Looks for one known defect from a random start: a release that has it, and, where there is one, the same code with the repair.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "search/campaign/campaign.h"

namespace gradledger::search {

struct KnownDefect {
  AsOf with;                               // a state of the code that has it
  std::optional<AsOf> without;             // the same with the repair; absent: nothing has one yet
  std::vector<ref::FindingClass> classes;  // any of which shows it
  std::string engine;                      // where `without` is absent: that the finding must be on
  const Framework* framework = nullptr;    // whose engines are drawn; null: those of the framework that scenarios have where they name none
};

struct RowHunt {
  bool found = false;
  std::uint32_t cases = 0;  // drawn until then
  std::optional<ref::FindingClass> finding;
  Scenario scenario;  // as drawn
  Scenario smallest;
  std::uint32_t events = 0;  // of the smallest
};

// The class by which a scenario shows the defect, and the repaired code does not.
std::optional<ref::FindingClass> shown_by(const Scenario& scenario, const KnownDefect& defect);

// The defect alone counts: what the repaired code reports on the same script is another.
RowHunt hunt_row(const KnownDefect& defect, std::uint64_t seed, std::uint32_t cases_max, const std::function<bool()>& stop);

}  // namespace gradledger::search
