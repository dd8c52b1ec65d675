// What the oracle found, with what the scenario's file and the command know of it.
#pragma once

#include <filesystem>
#include <vector>

#include "report/finding.h"
#include "verbs/session.h"

namespace gradledger::verbs {

// With their places in the scenario's file.
std::vector<report::Finding> findings_of(const Loaded& loaded, const Options& options, const std::vector<ref::Finding>& findings);

// Fills in lines and columns; a file that cannot be read any more has none.
void locate(const std::filesystem::path& file, std::vector<report::Finding>& findings);

// Names, in the order of their numbers.
std::vector<std::string> parameter_names(const Scenario& scenario);

}  // namespace gradledger::verbs
