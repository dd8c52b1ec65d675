// PyTorch's fully_shard (FSDP2), as a framework.
#pragma once

#include "sim/frameworks/framework.h"

namespace gradledger::torch {

const Framework* fsdp2();

}  // namespace gradledger::torch
