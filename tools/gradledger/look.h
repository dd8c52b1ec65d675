// How text for people looks: colours, the width of lines, how much of it there is.
#pragma once

#include <CLI/CLI.hpp>

#include "report/format.h"
#include "tools/gradledger/options.h"

namespace gradledger::tool {

void add_look(CLI::App* verb, Look& look);

// What was asked for, and else what standard output is: colours and the terminal's width on a terminal, neither in a file or a pipe.
// NO_COLOR (https://no-color.org) and TERM=dumb are heard where no option says otherwise.
report::Style style_of(const Look& look);

}  // namespace gradledger::tool
