// Scenarios of true size are judged without numbers: tests that run every scenario on numbers leave them out.
#pragma once

#include "sim/base/limits.h"
#include "sim/judgement_bytes.h"

namespace gradledger::testing {

inline bool fits_numbers(const Scenario& scenario) { return judgement_bytes(scenario) <= limits::memory_bytes_default; }

}  // namespace gradledger::testing
