// What decided gradients of FullyShardedDataParallel in another way in earlier releases, as switches. behaviour.cpp has their rows.
#pragma once

#include <cstdint>

#include "sim/base/result.h"
#include "sim/frameworks/torch/history/wrapper_history.h"
#include "sim/frameworks/watched_switch.h"

namespace gradledger::torch::flat_sharded {

// In the order of the values of its row.
enum class ReplacedParameter : std::uint8_t { takes_gradients, raises };

struct Behaviour {
  Watched<ReplacedParameter> replaced_parameter{ReplacedParameter::raises};
};

const WrapperHistory& history();

// Errors: an unknown release, switch or value.
Result<Behaviour> behaviour_at(const AsOf& as_of);

}  // namespace gradledger::torch::flat_sharded
