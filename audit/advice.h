// What helps: changes that were tried, each by replaying the run with it.
#pragma once

#include <vector>

#include "audit/replayer.h"
#include "audit/sweep.h"
#include "report/audit.h"

namespace gradledger::audit {

// Clean ones first. Precondition: the set-up is affected.
std::vector<report::AuditAdvice> advice_for(const Setup& setup, Replayer& replayer, const std::vector<AtRelease>& releases);

}  // namespace gradledger::audit
