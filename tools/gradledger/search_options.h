// The options of the verbs that search.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/gradledger/explore.h"
#include "tools/gradledger/fuzz.h"

namespace gradledger::tool {

// After the options of a gate over scenarios, most of which mean nothing here and are refused.
void add_mutants(CLI::App* gate, Options& options);

CLI::App* add_fuzz(CLI::App& app, FuzzOptions& fuzz);

// After the options that fuzz has in common with others: which of them its other ways to search do not take.
void limit_fuzz(CLI::App* fuzz);

CLI::App* add_explore(CLI::App& app, ExploreVerb& verb);
void limit_explore(CLI::App* explore);

}  // namespace gradledger::tool
