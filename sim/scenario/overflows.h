// Where a script plants an infinity or NaN: in which gradient of which backward. Windows have to be known for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/base/result.h"
#include "sim/scenario/script.h"
#include "sim/scenario/timeline.h"

namespace gradledger {

// One overflow of the script, as it was met.
struct Overflow {
  const ScriptItem* item;
  std::uint32_t step;  // the window that it stands in
  std::string where;   // its pointer
};

// Fills in what is planted, by backward and rank. Errors: a micro-batch that its window does not have, or one that uses no such parameter.
std::optional<InputError> plant_overflows(const Workload& workload, const std::vector<Overflow>& overflows, Timeline& timeline);

}  // namespace gradledger
