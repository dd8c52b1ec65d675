// What two smallest scripts must have in common to be one finding.
#pragma once

#include <string>
#include <vector>

#include "sim/scenario/scenario.h"

namespace gradledger::search {

// "2 ranks: boundary(F) backward boundary(T) backward step": events alone, whatever the options are.
std::string shape_of(const Scenario& scenario);

// Whether leaving out events of the longer script gives the shorter: then the longer is no finding of its own.
bool is_part_of(const std::vector<ScriptItem>& shorter, const std::vector<ScriptItem>& longer);

// Eight hexadecimal digits.
std::string short_hash(const std::string& text);

}  // namespace gradledger::search
