// The files of report/html/assets, put into the program by CMake.
#pragma once

#include <string_view>

namespace gradledger::report {

extern const std::string_view page_style, page_script;

}  // namespace gradledger::report
