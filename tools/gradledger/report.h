// Verdicts for people and for programs.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "verbs/session.h"
#include "tools/gradledger/watch.h"

namespace gradledger::tool {

// The whole terminal report of a replay: header, a line for each event and rank, the ledger, the verdict, the command that repeats it.
std::string terminal_report(const Loaded& loaded, const Options& options, const ref::Verdict& verdict, const EventWatch& watch);

// The ledger of the gradients that were applied, wrong cells marked.
std::string ledger_table(const Loaded& loaded, const Options& options, const ref::Verdict& verdict);

// Whose a finding is, as the reports have it: {"whose", "rule", "why"}; ", usage (single-boundary)" or nothing.
nlohmann::ordered_json blame_json(const ref::Blame& blame);
std::string usage_mark(const ref::Blame& blame);

nlohmann::ordered_json json_report(const Loaded& loaded, const Options& options, const ref::Verdict& verdict);

}  // namespace gradledger::tool
