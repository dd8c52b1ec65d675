// What two smallest scripts must have in common to be one finding.
#pragma once

#include <string>

#include "sim/scenario/scenario.h"

namespace gradledger::search {

// "2 ranks: boundary(F) backward boundary(T) backward step": events alone, whatever the options are.
std::string shape_of(const Scenario& scenario);

// Eight hexadecimal digits.
std::string short_hash(const std::string& text);

}  // namespace gradledger::search
