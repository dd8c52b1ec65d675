// Layouts made simpler, with what parameters say of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "sim/scenario/scenario.h"

namespace gradledger::search {

// Each gives false, and leaves the scenario as it was, where there is nothing to change or no such layout.

// Other sizes in the order that there is.
bool lay_out(Scenario& scenario, const std::map<std::string, std::uint32_t>& sizes, std::uint32_t world_size);
// Ranks of the dimension are data-parallel ones from now on, and have whole parameters of one stage.
bool without_dimension(Scenario& scenario, const std::string& dimension);
bool drop_layout(Scenario& scenario);
bool in_the_usual_order(Scenario& scenario);

}  // namespace gradledger::search
