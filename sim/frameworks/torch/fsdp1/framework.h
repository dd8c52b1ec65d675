// PyTorch's FullyShardedDataParallel (FSDP1), as a framework.
#pragma once

#include "sim/frameworks/framework.h"

namespace gradledger::torch {

const Framework* fsdp1();

}  // namespace gradledger::torch
