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

}  // namespace gradledger::search
