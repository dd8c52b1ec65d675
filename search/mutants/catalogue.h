// The parts of the catalogue, by what they break.
#pragma once

#include <vector>

#include "search/mutants/mutant.h"

namespace gradledger::search {

std::vector<Mutant> accumulation_mutants();
std::vector<Mutant> reduction_mutants();
std::vector<Mutant> order_mutants();
std::vector<Mutant> step_mutants();
std::vector<Mutant> lifecycle_mutants();
std::vector<Mutant> loop_mutants();  // of engines whose loops own their windows
std::vector<Mutant> hook_mutants();  // of DistributedDataParallel's communication hooks
std::vector<Mutant> muon_mutants();
std::vector<Mutant> layout_mutants();  // of ranks that hold parts of one model

// Those engines, to the mutants of the other parts that they can have as well.
void add_loop_engines(std::vector<Mutant>& mutants);

}  // namespace gradledger::search
