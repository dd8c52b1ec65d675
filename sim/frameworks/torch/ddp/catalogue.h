// The known defects of DistributedDataParallel, and of loops that use it.
#pragma once

#include <span>

#include "sim/scenario/catalogue.h"

namespace gradledger::torch {

std::span<const Entry> ddp_catalogue();

}  // namespace gradledger::torch
