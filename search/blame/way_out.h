// Which known defect a finding of the framework is, by running the scenario with that defect's switch the other way; since when, until when.
#pragma once

#include "search/blame/blame.h"

namespace gradledger::search {

// Fills in Finding::known, for findings that are blamed on the framework.
void find_known_defects(const Scenario& scenario, const Timeline& timeline, std::vector<ref::Finding>& findings, const Judge& judge);

}  // namespace gradledger::search
