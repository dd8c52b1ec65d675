// The words that the command was called with.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace gradledger::tool {

// "; did you mean \"--seed\"?" where a word is nearly one that is known; else nothing.
std::string what_was_meant(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv);

// Without the words that change nothing but the form of a report, or how long it takes.
std::vector<std::string> without_form(const std::vector<std::string>& words);

// Without what else differs between shards of one run: which it is, and where it writes.
std::vector<std::string> without_sharding(const std::vector<std::string>& words);

// As a shell reads it; the program by its name alone.
std::string command_line(const std::vector<std::string>& words);

}  // namespace gradledger::tool
