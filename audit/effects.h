// What happens to contributions in what a run applies, in words: lost, doubled, stale, private.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ref/oracle.h"
#include "report/audit.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/timeline.h"

namespace gradledger::audit {

struct Effects {
  std::vector<report::AuditEffect> list;
  bool lost = false, partly = false, scaled = false, stale = false, kept_private = false;  // what is in the list
  bool races = false, no_update = false;                                                   // no_update: a step that must update applies nothing
  bool stops = false, other = false;                                                       // an error or a deadlock; something that is no weight
  std::optional<double> factor;                                                            // all that is wrong is this one factor on every contribution of every window
  std::string verdict;                                                                     // in a few words: "loses 6 of 8", "clean"
};

// Of a verdict with findings, or without any.
Effects effects_of(const Scenario& scenario, const Timeline& timeline, const ref::Verdict& verdict);

}  // namespace gradledger::audit
