// Shrinking without slippage: a simpler scenario counts only while it shows the same.
#pragma once

#include <cstdint>
#include <functional>

#include <rapidcheck/Shrinkable.h>

#include "search/shrink/edits.h"

namespace gradledger::search {

// The scenario, unrolled, with every simpler one that an engine serves; lazily, largest step first.
rc::Shrinkable<Scenario> shrinkable(Scenario scenario);

struct Shrunk {
  Scenario scenario;
  std::uint32_t tried = 0;
  bool minimal = false;  // every single step from here loses it; false: a limit came first
};

struct ShrinkLimits {
  std::uint32_t tried_max = 4000;
  std::function<bool()> stop = [] { return false; };  // asked before each step
};

// Precondition: `shows` holds for the scenario.
Shrunk shrink(const Scenario& scenario, const std::function<bool(const Scenario&)>& shows, const ShrinkLimits& limits = {});

}  // namespace gradledger::search
