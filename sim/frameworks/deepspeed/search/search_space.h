// DeepSpeed, as searches vary it.
#pragma once

#include "sim/frameworks/search_space.h"

namespace gradledger::deepspeed {

const SearchSpace& search_space();

}  // namespace gradledger::deepspeed
