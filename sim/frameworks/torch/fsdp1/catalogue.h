// The known defects of FullyShardedDataParallel, and of loops that use it.
#pragma once

#include <span>

#include "sim/scenario/catalogue.h"

namespace gradledger::torch::flat_sharded {

std::span<const Entry> catalogue();

}  // namespace gradledger::torch::flat_sharded
