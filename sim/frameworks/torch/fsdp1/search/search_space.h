// PyTorch's FullyShardedDataParallel, as searches vary it.
#pragma once

#include "sim/frameworks/search_space.h"

namespace gradledger::torch::flat_sharded {

const SearchSpace& search_space();

}  // namespace gradledger::torch::flat_sharded
