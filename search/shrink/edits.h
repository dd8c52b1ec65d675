// One step towards a simpler scenario: everything that can be taken out of one, largest first.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sim/scenario/scenario.h"

namespace gradledger::search {

// Changes the scenario; false where it has nothing to change.
using Edit = std::function<bool(Scenario&)>;

// Script without repeats, every backward of one micro-batch: one item an event, blocks aside.
void unroll(Scenario& scenario);

// As a file would be read: an event of all ranks names none.
void make_canonical(Scenario& scenario);

// In this order: windows, ranks, stretches of events, single events, parameters, then options to their defaults, then smaller values.
// What an edit makes need not be a scenario that any engine serves. Precondition: unrolled.
std::vector<Edit> edits_of(const Scenario& scenario);

// The first so many ranks alone; what others did is gone. False, and nothing of use, where that leaves no script or the layout cannot be so small.
bool with_fewer_ranks(Scenario& scenario, std::uint32_t ranks);

// Events of a script; a block counts where it begins and where it ends.
std::size_t events_of(const std::vector<ScriptItem>& items);

}  // namespace gradledger::search
