// Its known defects.
#pragma once

#include <span>

#include "sim/scenario/catalogue.h"

namespace gradledger::megatron_fsdp {

std::span<const Entry> catalogue();

}  // namespace gradledger::megatron_fsdp
