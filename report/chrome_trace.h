// The lanes of a run in the Trace Event Format, as Perfetto and chrome://tracing open it.
#pragma once

#include <string>

#include "report/lanes.h"

namespace gradledger::report {

// One JSON object. A process is a rank, a thread a stream; what belongs to one event of the script on one stream lies in a slice of its own, and
// flows join what the ranks of a collective do. One unit of the lanes is a microsecond there: durations tell the order, and no time.
std::string chrome_trace(const Lanes& lanes, const std::string& command);

}  // namespace gradledger::report
