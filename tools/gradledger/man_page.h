// The page for man(1), made from the options themselves.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace gradledger::tool {

// A verb that the help does not speak of: the build calls it.
CLI::App* add_man_page(CLI::App& app);

std::string man_page(const CLI::App& app);

}  // namespace gradledger::tool
