// A recorded run of Megatron-Core as a scenario.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/frameworks/megatron/config.h"
#include "sim/scenario/scenario.h"
#include "conformance/megatron/run.h"

namespace gradledger::conform::megatron {

struct EventRange {
  std::uint32_t first = 0, last = 0;
};

struct Expressed {
  Scenario scenario;
  ::gradledger::megatron::MegatronConfig config;
  std::vector<EventRange> events;                           // by operation
  std::vector<std::map<std::uint32_t, std::string>> names;  // [rank]: parameters of the scenario, as the recording calls them
};

// Errors: where = inexpressible, and why; else an operation that is malformed.
Result<Expressed> express(const Run& run);

}  // namespace gradledger::conform::megatron
