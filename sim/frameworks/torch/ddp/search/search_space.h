// PyTorch's DistributedDataParallel, as searches vary it.
#pragma once

#include "sim/frameworks/search_space.h"

namespace gradledger::torch::data_parallel {

const SearchSpace& search_space();

}  // namespace gradledger::torch::data_parallel
