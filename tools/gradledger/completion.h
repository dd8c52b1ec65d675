// Completion of verbs, options and their values in a shell, made from the options themselves.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace gradledger::tool {

CLI::App* add_completion(CLI::App& app, std::string& shell);

// The script that `source` (fish, bash) or a file of $fpath (zsh) takes. Precondition: shell is bash, zsh or fish.
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace gradledger::tool
