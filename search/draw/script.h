// Scripts, as a state machine over what a user may call next.
#pragma once

#include "search/draw/generator.h"
#include "search/draw/swarm.h"

namespace gradledger::search {

// Fills in the script, and what of the configuration counts windows. Every event is one that the framework takes (Calls).
void draw_script(const Profile& profile, Draws& draws, const Swarm& swarm, Scenario& out);

}  // namespace gradledger::search
