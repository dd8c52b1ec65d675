// Runs a case again and holds the two runs against each other, decision by decision.
#pragma once

#include <string>

#include "search/campaign/screen.h"

namespace gradledger::search {

// Where two runs of the same seed part: "after decision 7 of 31, stream 2"; empty where they do not.
std::string differs_in_rerun(const Scenario& scenario, const Timeline& timeline, const LookOptions& options);

// Likewise, of what two runs recorded.
std::string first_parting(const RunSummary& one, const RunSummary& other);

}  // namespace gradledger::search
