// Draws and features (sim/frameworks/drawing.h), from RapidCheck's generator.
#pragma once

#include <rapidcheck/Random.h>

#include "sim/frameworks/drawing.h"

namespace gradledger::search {

using gradledger::Draws;
using gradledger::Feature;
using gradledger::Swarm;

}  // namespace gradledger::search
