// What each contribution weighs: in a correct sum by the documentation, and in the gradient that the loop means to apply.
#pragma once

#include <optional>
#include <vector>

#include "sim/base/result.h"
#include "sim/scenario/script.h"
#include "sim/scenario/timeline.h"

namespace gradledger {

// Fills in the weights of an unrolled script, and what its loop multiplies by. items: of each backward; touches: of each event that touches
// gradients. Errors: tokens that are missing, counts of 0 to divide by, weights of too many bits, weights without a contract that says what
// is due.
std::optional<InputError> weigh(const Workload& workload, const std::vector<const ScriptItem*>& items, const std::vector<const ScriptItem*>& touches, Timeline& timeline);

}  // namespace gradledger
