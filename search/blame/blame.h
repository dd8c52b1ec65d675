// Whose a finding is: the script's, where it leaves the documentation and the same contributions written as documented lose nothing, or the
// framework's.
#pragma once

#include <functional>

#include "ref/oracle.h"
#include "sim/scenario/scenario.h"

namespace gradledger::search {

using Judge = std::function<ref::Verdict(const Scenario&, const Timeline&)>;

// Fills in Finding::blame. Judges other forms of the script where it breaks a rule, and none where it does not.
void assign_blame(const Scenario& scenario, const Timeline& timeline, std::vector<ref::Finding>& findings, const Judge& judge);

}  // namespace gradledger::search
