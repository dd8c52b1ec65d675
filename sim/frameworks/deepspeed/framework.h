// DeepSpeed, as the registry lists it.
#pragma once

#include "sim/frameworks/framework.h"

namespace gradledger::deepspeed {

const Framework* framework();

}  // namespace gradledger::deepspeed
