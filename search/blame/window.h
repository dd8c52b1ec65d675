// Where a finding lies, for runs of one script that are compared.
#pragma once

#include <algorithm>

#include "ref/finding.h"
#include "sim/scenario/timeline.h"

namespace gradledger::search {

// The window that a finding shows itself in: what a step leaves behind belongs to the next one, and shows in its own.
inline std::uint32_t window_of(const ref::Finding& f, const Timeline& timeline) { return std::min(f.step, timeline.events[f.event].step); }

}  // namespace gradledger::search
