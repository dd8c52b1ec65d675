// The verbs that look something up: their options.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "tools/gradledger/options.h"

namespace gradledger::tool {

CLI::App* add_list(CLI::App& app, Options& options, std::string& what);
CLI::App* add_explain(CLI::App& app, Options& options, std::string& what, std::string& corpus);
CLI::App* add_schema(CLI::App& app, std::string& name);

}  // namespace gradledger::tool
