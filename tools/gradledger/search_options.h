// The options of the verbs that search.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/gradledger/explore.h"
#include "tools/gradledger/fuzz.h"

namespace gradledger::tool {

void add_mutants(CLI::App* gate, Options& options);
CLI::App* add_fuzz(CLI::App& app, FuzzOptions& fuzz);
CLI::App* add_explore(CLI::App& app, ExploreVerb& verb);

}  // namespace gradledger::tool
