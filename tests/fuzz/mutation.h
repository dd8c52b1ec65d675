// Documents bent at one place, so that they stay JSON and reach what lies behind the schema.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/hash.h"

namespace gradledger::fuzz {

// One place of the document replaced, removed, doubled or exchanged for another one.
nlohmann::json mutated(nlohmann::json document, SplitMix64& random);

// A byte flipped, removed, doubled or cut off at. Precondition: not empty.
std::string mutated(std::string text, SplitMix64& random);

}  // namespace gradledger::fuzz
