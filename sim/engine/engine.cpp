#include "sim/engine/engine.h"

#include "sim/base/contract.h"

namespace gradledger {

void Engine::load(const Engine&) { expects(false, "a checkpoint is loaded into an engine that says nothing of it"); }
void Engine::fold(StateFold&) const { expects(false, "an engine's states are told apart that does not say what they are"); }

}  // namespace gradledger
