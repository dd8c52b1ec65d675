// What must hold of any bytes whatever. Shared by the fuzz targets and by the test that runs over stored and mutated inputs.
#pragma once

#include <string_view>

namespace gradledger::fuzz {

// Bytes as a scenario file: an error with a place and words, or a scenario that comes back from its own text and has a timeline.
// Throws what a broken property throws.
void check_scenario(std::string_view bytes);

// Bytes as a condition on contributions.
void check_predicate(std::string_view bytes);

}  // namespace gradledger::fuzz
