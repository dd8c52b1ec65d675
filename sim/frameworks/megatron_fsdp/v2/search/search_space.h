// The second version, as searches vary it.
#pragma once

#include "sim/frameworks/search_space.h"

namespace gradledger::megatron_fsdp::v2 {

const SearchSpace& search_space();

}  // namespace gradledger::megatron_fsdp::v2
