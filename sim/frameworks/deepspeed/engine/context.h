// What DeepSpeed's engines are made of: any engine's context, and how the release behaves.
#pragma once

#include "sim/engine/engine.h"
#include "sim/frameworks/deepspeed/behaviour.h"

namespace gradledger {

struct DeepSpeedContext : EngineContext {
  Behaviour behaviour{};
};

}  // namespace gradledger
