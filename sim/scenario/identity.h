// What a scenario is, whatever it is called and in whatever order its script stands.
#pragma once

#include <string>
#include <string_view>

#include "sim/scenario/scenario.h"

namespace gradledger {

// A hash of world, configuration, parameters and events. It stays the same where names, notes, expectations or the release change, and where
// events change places.
std::string content_identity(const Scenario& scenario);

// Sixteen digits for a text.
std::string hash_digits(std::string_view text);

}  // namespace gradledger
