// Recorded operations as the script of a scenario: one event each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/scenario/scenario.h"
#include "tools/conformance/fields.h"

namespace gradledger::conform {

struct Script {
  std::vector<ScriptItem> items;
  std::optional<std::string> inexpressible;  // why some operation has no counterpart; the first one's reason
};

// Operations may replace a micro-batch's gradient: each such variant is appended to the values as a micro-batch of its own.
// Precondition: world, parameters, dtype and configuration of the scenario are set. Throws Unreadable where an operation is malformed.
Script make_script(const Field& operations, const Scenario& scenario, GivenValues& values);

}  // namespace gradledger::conform
