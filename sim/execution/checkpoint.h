// A rank whose process ends, and whose new one loads a checkpoint.
#pragma once

#include <memory>

#include "sim/engine/engine.h"
#include "sim/program/program.h"

namespace gradledger {

// Starts the fresh engine, gives it what a checkpoint holds of the old one, weights and moments included, and frees all memory of the old one.
void load_checkpoint(const Scenario& scenario, const Program& program, const Engine& old, Engine& fresh, ProgramWriter& w);

}  // namespace gradledger
