// Behaviour is data: named switches, each with the values it took over the history of the framework and the change that moved it. Their rows
// are switches.def.
// A scenario's `as_of` resolves to one Behaviour; engines test one named condition where the difference lies.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/result.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/watched_switch.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

#define SWITCH(Type, field, meaning, ...) enum class Type : std::uint8_t { __VA_ARGS__ };
#define VALUE(value, since) value,
#include "sim/frameworks/deepspeed/switches.def"

struct Behaviour {
#define SWITCH(Type, field, meaning, ...) Watched<Type> field;
#include "sim/frameworks/deepspeed/switches.def"

  bool operator==(const Behaviour&) const = default;
};

// One switch, for listings and for the schema.
struct SwitchInfo {
  struct Value {
    std::string_view name;
    std::string_view since;  // the change that brought it; "older", or "never" for a repair that no release has
  };
  std::string_view name;
  std::string_view meaning;
  std::vector<Value> values;
};

const std::vector<SwitchInfo>& switches();

// Errors: an unknown release or change, an unknown switch, a value that the switch does not have.
Result<Behaviour> resolve_behaviour(const AsOf& as_of);

// Stages 1 and 2: whether the elements behind the filled part of a bucket take part in its all-reduce.
bool reduces_whole_buckets(const DeepSpeedConfig& config, const Behaviour& behaviour);

// Offload of the optimizer: whether its host memory is pinned.
bool pins_host_memory(const DeepSpeedConfig& config, const Behaviour& behaviour);

// The value that a switch has in a behaviour, by name.
std::string_view switch_value(const Behaviour& behaviour, std::string_view switch_name);

// By the place of a switch, the place of its value.
std::vector<std::uint8_t> values_of_switches(const Behaviour& behaviour);

}  // namespace gradledger
