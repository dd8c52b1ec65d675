// Recorded operations as the script of a scenario, and the events that they become.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conformance/fields.h"
#include "sim/scenario/scenario.h"

namespace gradledger::conform {

struct Script {
  std::vector<ScriptItem> items;
  // The event that stands for an operation, by rank and operation; never: it changes nothing there.
  std::vector<std::vector<std::uint32_t>> events;
  std::vector<bool> reads;                   // by operation: it asks the framework for values, by collectives of its own
  bool weighs = false;                       // losses are multiplied so that windows of another length weigh what they are documented to
  std::optional<std::string> inexpressible;  // why some operation has no counterpart; the first one's reason
};

// Operations may replace a micro-batch's gradient: each such variant is appended to the values as a micro-batch of its own.
// micro_batch_size: samples that a rank takes at a time. Precondition: world, parameters, dtype and configuration of the scenario are set. Throws Unreadable where an operation is malformed.
Script make_script(const Field& operations, std::uint32_t micro_batch_size, const Scenario& scenario, GivenValues& values);

}  // namespace gradledger::conform
