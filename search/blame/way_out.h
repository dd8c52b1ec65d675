// Which known defect a finding of the framework is, by running the scenario with that defect's switch the other way; since when, until when.
#pragma once

#include "search/blame/blame.h"

namespace gradledger::search {

// Fills in Finding::known, for findings that are blamed on the framework. by_weights, if any, judges by a symbolic run alone, whose cost does not grow with
// elements: it takes over where the contributions have too many of them, for what such a run shows. Where that costs too much, or does not show the finding,
// the first 2, 4, 8, ... ranks by themselves stand for all as soon as they show it.
void find_known_defects(const Scenario& scenario, const Timeline& timeline, std::vector<ref::Finding>& findings, const Judge& judge, const Judge& by_weights = {});

}  // namespace gradledger::search
