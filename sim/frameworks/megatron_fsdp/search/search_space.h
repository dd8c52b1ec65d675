// Megatron-FSDP, as searches vary it.
#pragma once

#include "sim/frameworks/search_space.h"

namespace gradledger::megatron_fsdp {

const SearchSpace& search_space();

}  // namespace gradledger::megatron_fsdp
