// PyTorch's fully_shard, as searches vary it.
#pragma once

#include "sim/frameworks/search_space.h"

namespace gradledger::torch::fully_shard {

const SearchSpace& search_space();

}  // namespace gradledger::torch::fully_shard
