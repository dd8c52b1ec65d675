// What a page tells its reader to type, and what it says comes back.
//
// A block ```console holds commands behind "$ ", a line each, and what each prints. A block ```json NAME is a file that the reader has by then. In what is
// printed, a line "..." stands for any lines, and "..." within a line for anything in it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gradledger::testing {

std::vector<std::string> lines_of(const std::string& text);

bool matches(const std::vector<std::string>& expected, const std::vector<std::string>& printed);

struct PageRun {
  std::size_t commands = 0;
  std::vector<std::string> differing;  // what a person needs to see of each
  std::string page;                    // with what was printed where that is not what the page says
};

// Runs them one after another in an empty folder, with a terminal's width of 90 columns. The corpus lies there as "scenarios".
PageRun run_page(const std::filesystem::path& page);

}  // namespace gradledger::testing
