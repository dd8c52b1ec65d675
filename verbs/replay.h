// One scenario, judged and explained, as a report.
#pragma once

#include "report/report.h"
#include "verbs/event_watch.h"
#include "verbs/session.h"

namespace gradledger::verbs {

// `watch`, if any, sees the primary pass too. Throws ProgramsTooLarge and RunFailure.
report::Report replay(const Loaded& loaded, const Options& options, TraceSink* watch = nullptr);

// The report of a verdict that is there already; `lines` are those of its primary pass.
report::Report report_of(const Loaded& loaded, const Options& options, const ref::Verdict& verdict, EventWatch& lines);

}  // namespace gradledger::verbs
