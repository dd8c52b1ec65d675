// The options of the verbs that search.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/gradledger/fuzz.h"

namespace gradledger::tool {

CLI::App* add_fuzz(CLI::App& app, FuzzOptions& fuzz);

}  // namespace gradledger::tool
