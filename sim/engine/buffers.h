// The buffers that the engines allocate, by the framework's names without index ("averaged_gradients[0]" is of the family
// averaged_gradients). What a parameter has its own of is written with "*" for the parameter's name: "*.grad".
#pragma once

#include <string_view>
#include <vector>

#include "sim/scenario/scenario.h"

namespace gradledger {

struct BufferFamily {
  std::string_view name;
  std::string_view allocated_by;
  std::string_view holds;
};

const std::vector<BufferFamily>& buffer_families();

// Whether an engine could allocate a buffer of that name for the scenario's parameters.
bool names_buffer_family(const Scenario& scenario, std::string_view name);

}  // namespace gradledger
