// The ways in which loops are known to weigh the contributions of a window, so that a wrong one can be named.
#pragma once

#include <vector>

#include "ref/classify.h"
#include "ref/ledger.h"

namespace gradledger::ref {

// Weights for the columns of an entry, up to a common factor; 0 for what is of another window.
std::vector<Normalisation> known_normalisations(const Workload& workload, const Timeline& timeline, const LedgerEntry& entry);

}  // namespace gradledger::ref
