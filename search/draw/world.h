// Worlds, parameters and configurations.
#pragma once

#include "search/draw/generator.h"
#include "search/draw/swarm.h"

namespace gradledger::search {

// Fills in all but the script. What the framework refuses, or a scenario may not say, can come out: the caller asks and draws again.
void draw_world(const Profile& profile, Draws& draws, const Swarm& swarm, Scenario& out);

}  // namespace gradledger::search
