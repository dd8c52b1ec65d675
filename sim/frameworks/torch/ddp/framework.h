// DistributedDataParallel, as the registry lists it.
#pragma once

#include "sim/frameworks/framework.h"

namespace gradledger::torch {

const Framework* ddp();

}  // namespace gradledger::torch
