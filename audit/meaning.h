// What wrong weights mean for an optimizer, in sentences that follow from the weights alone.
#pragma once

#include <string>
#include <vector>

#include "audit/effects.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/timeline.h"

namespace gradledger::audit {

// optimizer: as its user calls it.
std::vector<std::string> meaning_of(const Effects& effects, const Scenario& scenario, const Timeline& timeline, const std::string& optimizer);

}  // namespace gradledger::audit
