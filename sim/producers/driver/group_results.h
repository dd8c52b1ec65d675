// What becomes of a collective once every member has asked: whether the calls fit each other, whether anybody could do it, and the results.
// Members are given in the order of the group; of a send and a receive, the sender first.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/producers/driver/group_request.h"

namespace gradledger::driver {

using GroupMembers = std::span<const GroupRequest* const>;

// What the calls differ in: "kind", "dtype", "size", "operator" or "root"; null if in nothing. Sizes of an all_to_all with parts are each member's
// own affair.
const char* misfit(GroupMembers members);

// Why calls that fit each other cannot be done; nothing where they can.
std::optional<std::string> refusal(GroupMembers members);

// By member. Preconditions: fault_of() each, misfit() and refusal() find nothing.
std::vector<std::vector<std::uint8_t>> results_of(GroupMembers members);

}  // namespace gradledger::driver
