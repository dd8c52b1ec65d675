// Megatron-Core, as the registry lists it.
#pragma once

#include "sim/frameworks/framework.h"

namespace gradledger::megatron {

const Framework* framework();

}  // namespace gradledger::megatron
