// What a scenario holds and sends, as a report.
#pragma once

#include "report/runs.h"
#include "verbs/session.h"

namespace gradledger::verbs {

// By a dry run. Throws ProgramsTooLarge.
report::AccountingReport accounting_report(const Loaded& loaded, const Options& options);

}  // namespace gradledger::verbs
